"""Takes work back from workers that went silent."""

from db.repositories.claim_and_release_work import WorkItems
from db.repositories.control_loop_ticks import GAP_SEC, LoopTicks
from db.repositories.leases import Leases
from db.session import Database
from mallorn.core import queues
from mallorn.core.settings import Settings
from mallorn.core.states import WorkKind
from mallorn.core.surviving_loop import Turn
from services.control.wake_messages import TASKS, Message, message_of


def reap(
    database: Database,
    turn: Turn | None = None,
    lease_sec: float = Settings.model_fields["lease_sec"].default,
) -> list[Message]:
    """Free work whose lease ran out, give up what lost ten workers so, and tell the jobs.

    While nobody looked, or when the clock is set forward, leases run out that nobody could renew: the living
    are given the time for it first.
    """
    turn = turn or Turn()
    if turn.steady_sec < min(lease_sec / 3, GAP_SEC):  # however rare turns are, the second is steady
        with database.transaction() as session:
            LoopTicks(session).pull_back(lease_sec)
        return []
    with database.session() as session:
        jobs = Leases(session).silent_jobs()
    messages: list[Message] = []
    for job_id in jobs:
        if not turn.away:
            with turn.part("work of the dead is not taken back"), database.transaction() as session:
                lost = WorkItems(session).expire(job_id)
                freed = [each.hold.item for each in lost if not each.given_up]
                again = [item for item in freed if item.kind in TASKS]
                Leases(session).mark_sent(again)
                messages += map(message_of, again)
                given_up = [each for each in lost if each.given_up]
                poisoned = [each.job_id for each in given_up if each.hold.item.kind is WorkKind.ROUND]
                messages += [(queues.PLAN, job_id) for job_id in poisoned]
    return messages
