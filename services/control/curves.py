"""What the rounds of a workload tell, whichever job paid for them."""

from collections.abc import Iterable, Iterator, Sequence

from db.repositories.standings import Standing, WorkloadRound
from db.tables import Job
from mallorn.core.states import RoundState
from services.planner.values import Point


def points(job: Job, task: Standing) -> Iterator[Point]:
    """The rounds that measured something, in closing order, on top of what was known before them."""
    measured = [row for row in task.rounds if has_run(row) and row.trials]
    # The job counted the dataset's rows when it was imported; those that are points now count once.
    counted = [row for row in measured if row.job_id != job.id and (row.closed_at or 0.0) < job.created_at]
    trials = max(0, task.known_at_start - sum(row.trials for row in counted))
    for row in measured:
        trials += row.trials
        yield Point(trials, row.best_us)


def has_run(row: WorkloadRound) -> bool:
    """Whether a round is closed, and not just withdrawn before anyone began it."""
    return not row.state.open and (row.trials > 0 or row.state != RoundState.CANCELLED)


def seconds_per_trial(rounds: Iterable[WorkloadRound]) -> float | None:
    """Wall time of closed rounds over what they measured; None before the first."""
    done = [row for row in rounds if row.state == RoundState.DONE and row.wall_sec and row.trials]
    trials = sum(row.trials for row in done)
    return sum(row.wall_sec or 0.0 for row in done) / trials if trials else None


def barren(closed: Sequence[WorkloadRound]) -> int:
    """Rounds since the last one that brought a valid result, those that never ran left out."""
    count = 0
    for row in reversed(closed):
        if row.best_us is not None:
            break
        count += row.trials > 0 or row.state == RoundState.POISON
    return count


def lost(closed: Sequence[WorkloadRound]) -> int:
    """How many of the newest rounds were given up after they lost worker after worker."""
    ran = [row.state for row in closed if row.state != RoundState.CANCELLED]
    return next((at for at, state in enumerate(reversed(ran)) if state != RoundState.POISON), len(ran))
