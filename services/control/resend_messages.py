"""Resends messages that the broker may have lost; duplicates are harmless."""

from db.repositories.fair_shares import FairShares
from db.repositories.leases import Leases
from db.repositories.rounds import Rounds
from db.repositories.workers import FRESH_SEC, Workers
from db.session import Database
from mallorn.core import queues
from mallorn.core.surviving_loop import Turn
from services.control.wake_messages import Message, message_of

# Longer than a round waits in a healthy queue, and short enough for waiting users.
STALE_SEC = 20.0
# Planning a job costs milliseconds, so a sweep plans only the next few jobs of each target.
LOOKS_PER_TARGET = 4
# More than a worker takes until the next sweep, bounded so that messages do not pile up.
SENT_PER_HAND = 4


def sweep(database: Database, turn: Turn | None = None) -> list[Message]:
    """Return messages for stale work and for jobs to plan; withdraw unneeded rounds."""
    turn, messages = turn or Turn(), list[Message]()
    with turn.part("could not resend lost messages"), database.transaction() as session:
        worker_count = len(Workers(session).list(FRESH_SEC))
        waiting = Leases(session).waiting(STALE_SEC, SENT_PER_HAND * max(1, worker_count))
        Leases(session).mark_sent(waiting)
        messages += map(message_of, waiting)
    with turn.part("could not look for jobs to plan"), database.session() as session:
        messages += [(queues.PLAN, job_id) for job_id in FairShares(session).due(LOOKS_PER_TARGET)]
    with turn.part("unneeded rounds are not withdrawn"), database.transaction() as session:
        Rounds(session).withdraw()
    return messages
