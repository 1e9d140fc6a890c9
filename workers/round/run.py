"""One round: claim it, propose candidates, build and measure them as a stream, commit in small batches."""

import logging
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from db.repositories.events import Events
from db.repositories.jobs import Jobs
from db.repositories.rounds import MAX_LOSSES, Rounds
from db.repositories.tasks import Tasks
from mallorn.core.errors import (
    HostFault,
    InvalidRequest,
    LeaseLost,
    MallornError,
    PluginFailed,
    StorageFull,
    Unavailable,
    UnknownName,
    Unschedulable,
)
from mallorn.core.logs import note
from mallorn.core.options import JobOptions
from mallorn.core.states import JobState, RoundState
from mallorn.core.values.event import (
    FailedEvent,
    PausedEvent,
    RoundClosedEvent,
    RoundPoisonedEvent,
    RoundReturnedEvent,
)
from workers.children.errors import ChildError
from workers.children.shutdown import Stopping
from workers.host.alone import Host
from workers.measure.base import SlotTrial
from workers.round.bases import proposer
from workers.round.commits import ERROR_CHARS, Commits
from workers.round.context import RoundContext
from workers.round.falling_back import prepare, ranked
from workers.slot.lease import Lease
from workers.slot.runtime import Runtime

log = logging.getLogger(__name__)

# What time or an operator mends: no device, a full disk, a setting or a name that this worker lacks.
PASSING: Final = (Unavailable, StorageFull, UnknownName)
PROPOSING: Final = ("search", "sampler", "cost_model")


@dataclass(frozen=True, slots=True)
class Closed:
    """A round that ended in this process."""

    job_id: str
    task_id: int


def run(runtime: Runtime, round_id: int) -> Closed | None:
    """Run a round to its end; None when it was not ours to run, or no longer is."""
    attempt = _claim(runtime, round_id)
    if attempt is None:
        return None
    lease_sec = runtime.settings.lease_sec
    with Lease(lambda: _renew(runtime, round_id, attempt), lease_sec) as lease:
        try:
            return _work(runtime, round_id, attempt, lease)
        except Stopping:
            _hand_back(runtime, round_id, attempt)
        except LeaseLost:
            log.warning("the round was taken back")
        except HostFault as error:
            _stumble(runtime, round_id, attempt, error)
        except PASSING as error:
            _hand_back(runtime, round_id, attempt, error)
        except PluginFailed as error:
            if error.seam in PROPOSING:  # measured in part: another worker may have what this one lacks
                _lose(runtime, round_id, attempt, error, MAX_LOSSES)
            else:
                _fail(runtime, round_id, attempt, error)
        except ChildError as error:
            # TVM died of the workload, not of a candidate: it is tried again, three times in all.
            _lose(runtime, round_id, attempt, error, MAX_LOSSES)
        except InvalidRequest as error:
            _fail(runtime, round_id, attempt, error)
        except Unschedulable as error:
            _lose(runtime, round_id, attempt, error, max_losses=1)
    return None


def _claim(runtime: Runtime, round_id: int) -> int | None:
    """Take the round; the first claim also settles which version of the cost model it uses, for good."""
    with runtime.database.transaction() as session:
        attempt = Rounds(session).claim(round_id, runtime.name, runtime.settings.lease_sec)
        if attempt is None:
            return None
        row = Rounds(session).get(round_id)
        note(job=row.job_id, attempt=attempt)
        if attempt == 1:
            options = JobOptions.model_validate(Jobs(session).get(row.job_id, None).options)
            family = Tasks(session).get(row.task_id).family
            Rounds(session).settle(round_id, proposer(session, row, family, options.cost_model))
    return attempt


def _renew(runtime: Runtime, round_id: int, attempt: int) -> bool:
    with runtime.database.transaction() as session:
        return Rounds(session).renew(round_id, attempt, runtime.settings.lease_sec)


def _work(runtime: Runtime, round_id: int, attempt: int, lease: Lease) -> Closed:
    started = time.monotonic()
    with runtime.working_on(_words(runtime, round_id)):
        with Host().shared():
            context, slots, proposals = prepare(runtime, round_id, attempt)
        proposed = time.monotonic()
        missing = [slot for slot in slots if slot.slot not in context.done_slots]
        commits = Commits(runtime.database, context, attempt, slots, proposals)
        measurer = runtime.measurer(context.options)
        results = measurer.measure(context.program, context.target, missing, context.options, context.best_us)
        with closing(results):
            _commit(results, commits, lease)
    stats = {
        "propose_sec": round(proposed - started, 3),
        "measure_sec": round(time.monotonic() - proposed, 3),
        "candidates": len(missing),
        "cost_model": context.model_name,
    }
    _close(runtime, context, attempt, stats | ranked(runtime, context))
    return Closed(context.row.job_id, context.row.task_id)


def _words(runtime: Runtime, round_id: int) -> str:
    with runtime.database.session() as session:
        row = Rounds(session).get(round_id)
        return f"round {row.index} of job {row.job_id}: {Tasks(session).get(row.task_id).name}"


def _commit(results: Iterable[SlotTrial], commits: Commits, lease: Lease) -> None:
    """Commit results as they come; however the stream ends, what was measured under our lease is kept."""
    try:
        for result in results:
            lease.check()
            commits.add(result)
    finally:
        if not lease.lost:
            commits.flush()


def _close(runtime: Runtime, context: RoundContext, attempt: int, stats: dict[str, Any]) -> None:
    row = context.row
    with runtime.database.transaction() as session:
        if not Rounds(session).close(row.id, attempt, RoundState.DONE, stats):
            raise LeaseLost
        told = {"round": row.index, "task": context.task_index, "name": context.task_name, **stats}
        Events(session).append(row.job_id, RoundClosedEvent.model_validate(told))
    log.info("a round of %s is done: %s candidates", context.task_name, stats["candidates"])


def _hand_back(runtime: Runtime, round_id: int, attempt: int, error: MallornError | None = None) -> None:
    """Put the round back, with a word to its job when it waits for something: the sweeper sends it again."""
    words = f"{error.message}\n{error.hint}".strip() if error else ""
    log.warning("the round goes back to the queue: %s", words or "this worker stops")
    with runtime.database.transaction() as session:
        if Rounds(session).close(round_id, attempt, RoundState.QUEUED, error=words) and words:
            Jobs(session).say(Rounds(session).get(round_id).job_id, words)


def _stumble(runtime: Runtime, round_id: int, attempt: int, error: HostFault) -> None:
    """A round that this host cannot work on goes to another; the third such loss pauses the job, in words."""
    with runtime.database.transaction() as session:
        row = Rounds(session).get(round_id)
        if row.losses + 1 < MAX_LOSSES:
            Rounds(session).lose(round_id, attempt, error.message)
            Jobs(session).say(row.job_id, f"{error.message}\n{error.hint}".strip())
        elif Rounds(session).close(round_id, attempt, RoundState.CANCELLED, error=error.message):
            next_step = f"{error.hint}   (then: mallorn resume {row.job_id})"
            Jobs(session).pause(row.job_id, None, f"{error.message}\n{next_step}")
            Rounds(session).withdraw(row.job_id)
            Events(session).append(row.job_id, PausedEvent(state=JobState.PAUSED, why=error.message))


def _fail(runtime: Runtime, round_id: int, attempt: int, error: MallornError) -> None:
    """End the job: nothing of it can be measured as it was asked for."""
    log.error("round %s ends its job: %s", round_id, error)
    with runtime.database.transaction() as session:
        if not Rounds(session).close(round_id, attempt, RoundState.CANCELLED, error=error.message):
            return
        job_id = Rounds(session).get(round_id).job_id
        Rounds(session).cancel_open(job_id)
        reason = f"{error.message}\n{error.hint}".strip()
        if Jobs(session).move(job_id, [JobState.TUNING], JobState.FAILED, reason):
            told = FailedEvent(error=error.code, detail=error.message, hint=error.hint)
            Events(session).append(job_id, told)


def _lose(runtime: Runtime, round_id: int, attempt: int, error: MallornError, max_losses: int) -> None:
    log.error("the round failed: %s", error)
    with runtime.database.transaction() as session:
        ended = Rounds(session).lose(round_id, attempt, error.message[-ERROR_CHARS:], max_losses)
        for event, lost in ((RoundReturnedEvent, ended.returned), (RoundPoisonedEvent, ended.poisoned)):
            for row in map(Rounds(session).get, lost):
                told = event(round=row.index, attempt=row.attempt, error=row.error)
                Events(session).append(row.job_id, told)
