"""Takes work back from workers that went silent, and repeats messages that the broker may have lost.

Redundant messages are harmless, as claims are conditional.
"""

from db.repositories.holds import Holds
from db.repositories.rounds import Rounds
from db.repositories.shares import Shares
from db.repositories.work_items import WorkItems
from db.session import Database
from mallorn.core import queues
from mallorn.core.states import WorkKind
from services.control.messages import TASKS, Message, message_of

# Longer than a healthy queue leaves a round waiting, shorter than anyone waits patiently.
STALE_SEC = 20.0
# A look at a job costs milliseconds: with hundreds of them a sweep takes the next few of every target.
LOOKS_PER_TARGET = 4


def reap(database: Database) -> list[Message]:
    """Free work whose lease ran out, give up what lost ten workers so, and tell the jobs."""
    with database.transaction() as session:
        lost = WorkItems(session).expire()
        again = [each.hold.item for each in lost if each.hold.item.kind in TASKS and not each.given_up]
        Holds(session).mark_sent(again)
    poisoned = [each for each in lost if each.hold.item.kind is WorkKind.ROUND and each.given_up]
    return [*map(message_of, again), *((queues.PLAN, each.job_id) for each in poisoned)]


def sweep(database: Database) -> list[Message]:
    """Messages for work that nobody holds and that was sent long ago, and for jobs that may need a plan."""
    with database.transaction() as session:
        Rounds(session).withdraw()
        waiting = Holds(session).waiting(STALE_SEC)
        Holds(session).mark_sent(waiting)
        due = Shares(session).due(LOOKS_PER_TARGET)
        return [*map(message_of, waiting), *((queues.PLAN, job_id) for job_id in due)]
