"""Takes back work whose lease expired because its worker went silent."""

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
    """Free work with expired leases, or give it up after ten lost workers; return messages.

    After a gap without turns, or after a step of the clock, leases may have expired that live
    workers could not renew: the first turns only give them time to renew.
    """
    turn = turn or Turn()
    if turn.steady_sec < min(lease_sec / 3, GAP_SEC):  # the second turn counts, however rare
        with database.transaction() as session:
            LoopTicks(session).pull_back(lease_sec)
        return []
    with database.session() as session:
        jobs = Leases(session).silent_jobs()
    messages: list[Message] = []
    for job_id in jobs:
        if not turn.away:
            with turn.part("could not reclaim lost work"), database.transaction() as session:
                losses = WorkItems(session).expire(job_id)
                freed = [loss.hold.item for loss in losses if not loss.is_given_up]
                retries = [item for item in freed if item.kind in TASKS]
                Leases(session).mark_sent(retries)
                messages += map(message_of, retries)
                given_up = [loss for loss in losses if loss.is_given_up]
                poisoned = [each.job_id for each in given_up if each.hold.item.kind is WorkKind.ROUND]
                messages += [(queues.PLAN, job_id) for job_id in poisoned]
    return messages
