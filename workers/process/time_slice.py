"""Fair turns: work that takes minutes lets others have its worker now and then (ADR 0034)."""

import time
from typing import Final

from db.repositories.leases import Leases
from db.session import Database
from mallorn.core.errors import MallornError
from mallorn.core.states import WorkKind

#: Several times what it costs to begin again with what was kept, and not much longer than a round.
TURN_SEC: Final = 30.0
#: A slot that is free takes work sooner.
WAITED_SEC: Final = 2.0
#: What waits for the slots that this work takes.
KINDS: Final = (WorkKind.ROUND, WorkKind.FINISH)


class TimeSliceOver(MallornError):
    """Others wait for this worker: what it holds goes on when they had their turn."""


class TimeSlice:
    """One stretch of work, from when its worker took it."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database = database
        self._job_id = job_id
        self._since_sec = time.monotonic()

    def offer(self, words: str) -> None:
        """Raise TimeSliceOver, between two stored steps, if the turn was long enough and other jobs wait."""
        if time.monotonic() < self._since_sec + TURN_SEC:
            return
        with self._database.session() as session:
            others = Leases(session).others_wait(self._job_id, KINDS, WAITED_SEC)
        if others:
            raise TimeSliceOver(f"{words}; other jobs have their turn")
