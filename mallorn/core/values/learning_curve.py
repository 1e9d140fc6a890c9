"""The planner's summary of closed rounds: a workload's learning curve, a task's totals."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Self

from mallorn.core.states import RoundState

MOST_POINTS: Final = 512


@dataclass(frozen=True, slots=True)
class WorkloadRound:
    """A round of a workload on the job's target, and its results."""

    job_id: str
    state: RoundState
    size: int
    trials: int
    best_us: float | None  # without candidates that computed wrong results
    elsewhere: bool  # all its times are from other measuring contexts than the job's
    wall_sec: float | None
    closed_at: float | None

    @property
    def has_run(self) -> bool:
        """Whether it is closed and was not withdrawn before any worker began it."""
        return not self.state.is_open and (self.trials > 0 or self.state != RoundState.CANCELLED)

    @property
    def is_timed(self) -> bool:
        """Whether it counts in the mean seconds per trial."""
        return self.state == RoundState.DONE and bool(self.wall_sec and self.trials)


@dataclass(frozen=True, slots=True)
class WorkloadPoint:
    """Trials and best time of a closed round, or of neighbouring old rounds together."""

    closed_at: float
    trials: int
    best_us: float | None  # None if no trial was valid


@dataclass(frozen=True, slots=True)
class WorkloadCurve:
    """A workload's closed rounds in closing order, and the time that its trials took."""

    points: tuple[WorkloadPoint, ...] = ()
    timed_trials: int = 0
    timed_sec: float = 0.0

    def with_rounds(self, rounds: Iterable[WorkloadRound]) -> Self:
        """Return the curve with further closed rounds, in closing order."""
        closed_rounds = list(rounds)
        timed = [row for row in closed_rounds if row.is_timed]
        points = [
            WorkloadPoint(row.closed_at or 0.0, row.trials, row.best_us)
            for row in closed_rounds
            if row.trials and not row.elsewhere
        ]
        timed_trials = sum(row.trials for row in timed)
        timed_sec = sum(row.wall_sec or 0.0 for row in timed)
        return self.joined(WorkloadCurve(tuple(points), timed_trials, timed_sec))

    def joined(self, other: "WorkloadCurve") -> Self:
        """Return one curve of the rounds of both, with at most MOST_POINTS points."""
        points = sorted((*self.points, *other.points), key=lambda point: point.closed_at)
        while len(points) > MOST_POINTS:  # join pairs of the older half, so that old points get coarser
            middle = MOST_POINTS // 2
            old = zip(points[:middle:2], points[1:middle:2], strict=True)
            points = [_join(*pair) for pair in old] + points[middle:]
        trials = self.timed_trials + other.timed_trials
        seconds = self.timed_sec + other.timed_sec
        return replace(self, points=tuple(points), timed_trials=trials, timed_sec=seconds)


def _join(first: WorkloadPoint, second: WorkloadPoint) -> WorkloadPoint:
    times = [point.best_us for point in (first, second) if point.best_us is not None]
    return WorkloadPoint(second.closed_at, first.trials + second.trials, min(times, default=None))


@dataclass(frozen=True, slots=True)
class ClosedRounds:
    """Totals of a job's own closed rounds of one task."""

    trials: int = 0
    rounds: int = 0  # that ran in the job's measuring context
    failed_rounds: int = 0  # since the last valid result
    lost_rounds: int = 0  # newest in a row that were given up (state POISON)
    is_exhausted: bool = False  # in some round the searcher found too little to propose
    timed_trials: int = 0
    timed_sec: float = 0.0

    def with_rounds(self, rounds: Iterable[WorkloadRound]) -> "ClosedRounds":
        """Return the totals with further closed rounds of the job, in closing order."""
        totals = self
        for row in rounds:
            totals = totals._with_round(row)
        return totals

    def _with_round(self, row: WorkloadRound) -> "ClosedRounds":
        totals = replace(self, trials=self.trials + row.trials)
        if row.is_timed:
            seconds = self.timed_sec + (row.wall_sec or 0.0)
            totals = replace(totals, timed_trials=self.timed_trials + row.trials, timed_sec=seconds)
        if not row.has_run or row.elsewhere:
            return totals
        is_failed = row.trials > 0 or row.state == RoundState.POISON
        lost = {RoundState.CANCELLED: self.lost_rounds, RoundState.POISON: self.lost_rounds + 1}
        return replace(
            totals,
            rounds=self.rounds + 1,
            failed_rounds=0 if row.best_us is not None else self.failed_rounds + is_failed,
            lost_rounds=lost.get(row.state, 0),
            is_exhausted=self.is_exhausted or (row.state == RoundState.DONE and row.trials < row.size),
        )
