"""Takes work back from workers that went silent."""

from sqlalchemy.orm import Session

from db.repositories.events import Events
from db.repositories.rounds import Rounds
from db.repositories.stages import Stages
from db.session import Database
from mallorn.core import queues
from mallorn.core.values.event import FailedEvent, RoundPoisonedEvent, RoundReturnedEvent
from services.control.messages import Message


def reap(database: Database) -> list[Message]:
    """Return expired rounds to the queue, give up on those that lost three workers, and tell the jobs."""
    with database.transaction() as session:
        rounds = Rounds(session).expire()
        for round_id in rounds.returned:
            _tell(session, round_id, RoundReturnedEvent)
        for round_id in rounds.poisoned:
            _tell(session, round_id, RoundPoisonedEvent)
        stages = Stages(session).expire_stages()
        for job_id in stages.failed:
            Events(session).append(job_id, FailedEvent(why="its worker died three times in a row"))
        poisoned = [(queues.PLAN, Rounds(session).get(round_id).job_id) for round_id in rounds.poisoned]
        returned = [(queues.RUN_ROUND, round_id) for round_id in rounds.returned]
    return [*returned, *poisoned]


def _tell(
    session: Session, round_id: int, event: type[RoundReturnedEvent] | type[RoundPoisonedEvent]
) -> None:
    row = Rounds(session).get(round_id)
    Events(session).append(row.job_id, event(round=row.index, attempt=row.attempt, error=row.error))
