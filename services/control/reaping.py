"""Takes work back from workers that went silent."""

from db.repositories.holds import Holds
from db.repositories.work_items import WorkItems
from db.session import Database
from mallorn.core import queues
from mallorn.core.states import WorkKind
from services.control.messages import TASKS, Message, message_of


def reap(database: Database) -> list[Message]:
    """Free work whose lease ran out, give up what lost ten workers so, and tell the jobs."""
    with database.transaction() as session:
        lost = WorkItems(session).expire()
        again = [each.hold.item for each in lost if each.hold.item.kind in TASKS and not each.given_up]
        Holds(session).mark_sent(again)
    poisoned = [each for each in lost if each.hold.item.kind is WorkKind.ROUND and each.given_up]
    return [*map(message_of, again), *((queues.PLAN, each.job_id) for each in poisoned)]
