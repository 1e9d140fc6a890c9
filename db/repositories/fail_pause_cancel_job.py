"""How a job ends or rests before it is done: it fails, is cancelled, or waits to be mended."""

from sqlalchemy.orm import Session

from db.repositories.job_events_and_warnings import Events
from db.repositories.jobs import Jobs
from db.repositories.leases import LeaseToken
from db.repositories.rounds import Rounds
from db.tables import Job
from mallorn.core.errors import MallornError
from mallorn.core.states import JobState
from mallorn.core.values.event import CancelledEvent, FailedEvent, PausedEvent


def fail_job(
    session: Session, job_id: str, state: JobState, error: MallornError, hold: LeaseToken | None = None
) -> bool:
    """End a job and its rounds with the error's words; False if it is in another state or held by others."""
    if not Jobs(session).move(job_id, [state], JobState.FAILED, error.reason, hold=hold):
        return False
    Rounds(session).cancel_open(job_id)
    told = failure(error)
    Jobs(session).record(job_id, suggest=told.suggest)
    Events(session).append(job_id, told)
    return True


def pause_job(session: Session, job_id: str, error: MallornError) -> None:
    """Let a job that tunes rest, with the error's words and how it goes on."""
    if Jobs(session).get(job_id, None).state == JobState.TUNING:
        next_step = f"{error.hint}   (then: mallorn resume {job_id})"
        Jobs(session).pause(job_id, None, f"{error.message}\n{next_step}")
        Rounds(session).withdraw(job_id)
        Events(session).append(job_id, PausedEvent(state=JobState.PAUSED, why=error.message))


def cancel(session: Session, job_id: str, owner: str | None, why: str) -> Job:
    """End a job and its rounds. Raises NotFound; Conflict when it has ended already."""
    job = Jobs(session).cancel(job_id, owner, f"cancelled {why}")
    Rounds(session).cancel_open(job_id)
    Events(session).append(job_id, CancelledEvent(state=JobState(job.state), trials=job.trials))
    return job


def failure(error: MallornError) -> FailedEvent:
    """An error as the log of a job keeps it."""
    told = {"error": error.code, "detail": error.message, "hint": error.hint}
    return FailedEvent.model_validate(told | ({"suggest": error.suggest} if error.suggest else {}))
