"""Import and finish: the stages of a job that one worker does alone, under a lease."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec
from sqlalchemy.orm import Session

from db.repositories.events import Events
from db.repositories.jobs import Jobs
from db.repositories.stages import MAX_LOSSES, Stages
from db.repositories.targets import Targets
from db.tables import Job
from mallorn.core.artifacts import model_uri
from mallorn.core.errors import LeaseLost, MallornError, StorageFull, Unavailable, UnknownName
from mallorn.core.logs import note
from mallorn.core.options import JobOptions
from mallorn.core.states import JobState
from mallorn.core.targets import Target
from mallorn.core.values.event import FailedEvent, JobEvent, StageReturnedEvent
from mallorn.core.values.graph import GraphReport
from workers.children.advice import advice
from workers.children.errors import ChildCrashed, ChildError, ChildTimeout
from workers.children.shutdown import Stopping
from workers.slot.lease import Lease
from workers.slot.runtime import Runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that this worker holds; `attempt` is its fencing token."""

    runtime: Runtime
    job: Job
    state: JobState
    target: Target
    options: JobOptions
    attempt: int
    lease: Lease

    def model_file(self, directory: Path) -> Path:
        """A local copy of the job's model."""
        path = directory / "model.onnx"
        with (
            fsspec.open(model_uri(self.runtime.settings.artifacts, self.job.model_id), "rb") as stored,
            path.open("wb") as copy,
        ):
            while chunk := stored.read(1 << 20):
                copy.write(chunk)
        return path

    @property
    def graph(self) -> GraphReport:
        """What the import found out; nothing before it."""
        return self.job.graph or GraphReport()

    def end(self, session: Session, to: JobState, reason: str, event: JobEvent) -> None:
        """Move the job on, in the caller's transaction; raises LeaseLost when it is no longer ours."""
        if not Jobs(session).move(self.job.id, [self.state], to, reason, attempt=self.attempt):
            raise LeaseLost
        Events(session).append(self.job.id, event)


@contextmanager
def stage(runtime: Runtime, job_id: str, state: JobState) -> Iterator[Stage | None]:
    """Hold a stage while the block runs; None when another worker has it or the job has moved on.

    An error that the user can act on fails the job with its words. What may pass by itself gives the stage
    back, for the sweeper to send again; a helper process that died does so at most three times.
    """
    claimed = _claim(runtime, job_id, state)
    if claimed is None:
        yield None
        return
    try:
        with claimed.lease:
            yield claimed
    except Stopping:
        _give_back(claimed)
    except LeaseLost:
        log.warning("%s was taken back", state)
    except (Unavailable, StorageFull, UnknownName) as error:
        _give_back(claimed, error)
    except (ChildCrashed, ChildTimeout) as error:
        # It may have died of a busy host: tried again, three times in all.
        _lose(claimed, error)
    except MallornError as error:
        _fail(claimed, error)
    except Exception as error:
        # A fault of ours: the lease runs out and the stage is tried again, three times in all.
        _say(claimed, f"{type(error).__name__} in {state}: {error}; the worker's log has the details")
        raise


def _claim(runtime: Runtime, job_id: str, state: JobState) -> Stage | None:
    lease_sec = runtime.settings.lease_sec
    with runtime.database.transaction() as session:
        attempt = Stages(session).claim_stage(job_id, state, runtime.name, lease_sec)
        if attempt is None:
            return None
        note(attempt=attempt)
        log.info("%s begins", state)
        job = Jobs(session).get(job_id, None)
        target = Target(Targets(session).get(job.target_id).text)

    def renew() -> bool:
        with runtime.database.transaction() as session:
            return Stages(session).renew_stage(job_id, attempt, lease_sec)

    options = JobOptions.model_validate(job.options)
    return Stage(runtime, job, state, target, options, attempt, Lease(renew, lease_sec))


def _give_back(claimed: Stage, error: MallornError | None = None) -> None:
    """Free the stage, with a word to the job when it waits for something: the sweeper sends it again."""
    words = f"{error.message}\n{error.hint}".strip() if error else ""
    log.warning("%s is given back: %s", claimed.state, words or "this worker stops")
    with claimed.runtime.database.transaction() as session:
        if Stages(session).release_stage(claimed.job.id, claimed.attempt) and words:
            Jobs(session).say(claimed.job.id, words)


def _lose(claimed: Stage, error: ChildError) -> None:
    """Give the stage back as a loss; the third fails the job."""
    log.error("%s broke off: %s", claimed.state, error)
    hint = advice(error, claimed.runtime.settings)
    with claimed.runtime.database.transaction() as session:
        job_id, what = claimed.job.id, error.message.partition("\n")[0]
        given_up = f"{claimed.state} broke off {MAX_LOSSES} times in a row: {what}\n{hint}".strip()
        lost = Stages(session).lose_stage(job_id, claimed.attempt, given_up)
        if lost.returned:
            Jobs(session).say(job_id, f"{claimed.state} broke off and is tried again: {what}\n{hint}".strip())
            Events(session).append(job_id, StageReturnedEvent(state=claimed.state, error=error.message))
        if lost.failed:
            Events(session).append(job_id, _why(error, hint))


def _say(claimed: Stage, words: str) -> None:
    with claimed.runtime.database.transaction() as session:
        Jobs(session).say(claimed.job.id, words)


def _fail(claimed: Stage, error: MallornError) -> None:
    log.warning("%s failed: %s", claimed.state, error)
    reason = f"{error.message}\n{error.hint}".strip()
    with claimed.runtime.database.transaction() as session:
        if Jobs(session).move(
            claimed.job.id, [claimed.state], JobState.FAILED, reason, attempt=claimed.attempt
        ):
            told = _why(error, error.hint)
            Jobs(session).record(claimed.job.id, suggest=told.suggest)
            Events(session).append(claimed.job.id, told)


def _why(error: MallornError, hint: str) -> FailedEvent:
    suggestion = {"suggest": error.suggest} if error.suggest else {}
    told = {"error": error.code, "detail": error.message, "hint": hint}
    return FailedEvent.model_validate(told | suggestion)
