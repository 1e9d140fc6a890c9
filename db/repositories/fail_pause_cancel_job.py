"""End or pause a job before it is done: fail it, pause it because of an error, or cancel it."""

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
    """Fail a job with this error and cancel its rounds; False if its state or lease has changed."""
    if not Jobs(session).move(job_id, [state], JobState.FAILED, error.reason, hold=hold):
        return False
    Rounds(session).cancel_open(job_id)
    event = failure(error)
    Jobs(session).record(job_id, suggest=event.suggest)
    Events(session).append(job_id, event)
    return True


def pause_job(session: Session, job_id: str, error: MallornError) -> None:
    """Pause a tuning job because of an error, and show the user how to resume it."""
    if Jobs(session).get(job_id, None).state == JobState.TUNING:
        next_step = f"{error.hint}   (then: mallorn resume {job_id})"
        Jobs(session).pause(job_id, None, f"{error.message}\n{next_step}")
        Rounds(session).withdraw(job_id)
        Events(session).append(job_id, PausedEvent(state=JobState.PAUSED, why=error.message))


def cancel(session: Session, job_id: str, owner: str | None, reason: str) -> Job:
    """Cancel a job and its rounds. Raises NotFound if there is none, Conflict if it has ended."""
    job = Jobs(session).cancel(job_id, owner, f"cancelled {reason}")
    Rounds(session).cancel_open(job_id)
    Events(session).append(job_id, CancelledEvent(state=JobState(job.state), trials=job.trials))
    return job


def failure(error: MallornError) -> FailedEvent:
    """Return the event that records an error in the log of a job."""
    fields = {"error": error.code, "detail": error.message, "hint": error.hint}
    return FailedEvent.model_validate(fields | ({"suggest": error.suggest} if error.suggest else {}))
