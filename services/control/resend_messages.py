"""Repeats messages that the broker may have lost: redundant ones are harmless, as claims are conditional."""

from db.repositories.fair_shares import FairShares
from db.repositories.leases import Leases
from db.repositories.rounds import Rounds
from db.repositories.workers import FRESH_SEC, Workers
from db.session import Database
from mallorn.core import queues
from mallorn.core.surviving_loop import Turn
from services.control.wake_messages import Message, message_of

# Longer than a healthy queue leaves a round waiting, shorter than anyone waits patiently.
STALE_SEC = 20.0
# A look at a job costs milliseconds: with hundreds of them a sweep takes the next few of every target.
LOOKS_PER_TARGET = 4
# More than a worker takes until the next sweep. Without a bound, what waits is sent faster than it is done.
SENT_PER_HAND = 4


def sweep(database: Database, turn: Turn | None = None) -> list[Message]:
    """Messages for work that nobody holds and that was sent long ago, and for jobs that may need a plan."""
    turn, messages = turn or Turn(), list[Message]()
    with turn.part("work whose message was lost is not sent again"), database.transaction() as session:
        hands = len(Workers(session).list(FRESH_SEC))
        waiting = Leases(session).waiting(STALE_SEC, SENT_PER_HAND * max(1, hands))
        Leases(session).mark_sent(waiting)
        messages += map(message_of, waiting)
    with turn.part("jobs that may need a plan are not looked at"), database.session() as session:
        messages += [(queues.PLAN, job_id) for job_id in FairShares(session).due(LOOKS_PER_TARGET)]
    with turn.part("rounds that nobody is to begin are not withdrawn"), database.transaction() as session:
        Rounds(session).withdraw()
    return messages
