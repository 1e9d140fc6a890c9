"""Time slices: work that takes minutes yields to other jobs at intervals (ADR 0034)."""

import time
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.core.states import WorkKind
from mallorn.db.repositories.leases import Leases
from mallorn.db.session import Database

#: Several times the cost of resuming from stored steps, and not much longer than a round.
TURN_SEC: Final = 30.0
#: Work that waits longer than this found no free worker.
WAITED_SEC: Final = 2.0
#: Kinds of work that need the same workers.
KINDS: Final = (WorkKind.ROUND, WorkKind.FINISH)


class TimeSliceOver(MallornError):
    """Raised if other jobs wait for this worker: its work is given back and continues later."""


class TimeSlice:
    """The time that a job has had this worker, counted from the creation of this object."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self._job_id = job_id
        self._since_sec = time.monotonic()

    def raise_if_over(self, words: str) -> None:
        """Raise TimeSliceOver if this job has had the worker for TURN_SEC and other jobs
        wait; `words` begin its message. Call this between steps."""
        if time.monotonic() < self._since_sec + TURN_SEC:
            return
        with self._database.session() as session:
            has_waiting = Leases(session).has_other_work_waiting(self._job_id, KINDS, WAITED_SEC)
        if has_waiting:
            raise TimeSliceOver(f"{words}; other jobs have their turn")
