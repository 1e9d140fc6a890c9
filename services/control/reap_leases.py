"""Takes work back from workers that went silent."""

from collections.abc import Sequence

from db.repositories.claim_and_release_work import WorkItems
from db.repositories.control_loop_ticks import GAP_SEC, LoopTicks
from db.repositories.leases import Leases, Loss
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
                messages += _taken(Leases(session), WorkItems(session).expire(job_id))
    return messages


def _taken(holds: Leases, lost: Sequence[Loss]) -> list[Message]:
    again = [each.hold.item for each in lost if each.hold.item.kind in TASKS and not each.given_up]
    holds.mark_sent(again)
    poisoned = [each for each in lost if each.hold.item.kind is WorkKind.ROUND and each.given_up]
    return [*map(message_of, again), *((queues.PLAN, each.job_id) for each in poisoned)]
