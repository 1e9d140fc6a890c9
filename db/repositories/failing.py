"""How a job fails for an error, wherever that happens."""

from sqlalchemy.orm import Session

from db.repositories.events import Events
from db.repositories.holds import Hold
from db.repositories.jobs import Jobs
from db.repositories.rounds import Rounds
from mallorn.core.errors import MallornError
from mallorn.core.states import JobState
from mallorn.core.values.event import FailedEvent


def fail_job(
    session: Session, job_id: str, state: JobState, error: MallornError, hold: Hold | None = None
) -> bool:
    """End a job and its rounds with the error's words; False if it is in another state or held by others."""
    if not Jobs(session).move(job_id, [state], JobState.FAILED, error.reason, hold=hold):
        return False
    Rounds(session).cancel_open(job_id)
    told = failure(error)
    Jobs(session).record(job_id, suggest=told.suggest)
    Events(session).append(job_id, told)
    return True


def failure(error: MallornError) -> FailedEvent:
    """An error as the log of a job keeps it."""
    told = {"error": error.code, "detail": error.message, "hint": error.hint}
    return FailedEvent.model_validate(told | ({"suggest": error.suggest} if error.suggest else {}))
