"""One planning step of one target: settle the job that has news, then deal the free slots by fair share."""

from db.repositories.holds import Holds, WorkItem
from db.repositories.jobs import Jobs
from db.repositories.shares import Shares
from db.session import Database
from services.control.fleet import Survey, survey
from services.control.messages import Message
from services.control.turn import Settled, take_turn
from services.control.waiting import USUAL, Patience
from services.planner.share import charged, dealt

PLAN_LEASE_SEC = 20.0


def plan_job(
    database: Database, job_id: str, holder: str, patience: Patience = USUAL
) -> list[Message] | None:
    """Messages to send after the commits; None when another process plans this job's target right now."""
    with database.transaction() as session:
        target_id = Jobs(session).get(job_id, None).target_id
        hold = Holds(session).claim(WorkItem.plan(target_id), holder, PLAN_LEASE_SEC)
    if hold is None:
        return None
    try:
        with database.session() as session:
            seen = survey(session, target_id)
        return _TargetStep(database, seen, patience).run(job_id)
    finally:
        with database.transaction() as session:
            Holds(session).end(hold)


class _TargetStep:
    """Goes from job to job, each in a transaction of its own that locks this one job.

    The lease saves work; these locks are what keeps two planners from spending one budget twice.
    """

    def __init__(self, database: Database, seen: Survey, patience: Patience) -> None:
        self._database = database
        self._patience = patience
        self._devices = seen.devices
        self._free = seen.free_slots
        self._jobs = {job.id: job for job in seen.jobs}
        self._able = set(seen.able)
        self._messages: list[Message] = []

    def run(self, first: str) -> list[Message]:
        """The job that has news is looked at in any case, every other one only when it is its turn."""
        if first in self._jobs:
            self._look_at(first, self._deal(self._able | {first}).get(first, 0))
        while slots := self._deal(self._able):
            for job_id, count in slots.items():
                self._look_at(job_id, count)
        return self._messages

    def _deal(self, able: set[str]) -> dict[str, int]:
        return dealt(self._jobs.values(), able, self._free)

    def _look_at(self, job_id: str, slots: int) -> None:
        with self._database.transaction() as session:
            turn = take_turn(session, job_id, slots, self._devices, self._patience)
            paid = charged([*self._jobs.values()], job_id, turn.candidates)
            Shares(session).take_turn(job_id, paid.share_pass, paid.owner_pass)
        self._jobs[job_id] = paid
        self._note(job_id, slots, turn)

    def _note(self, job_id: str, slots: int, turn: Settled) -> None:
        self._messages += turn.messages
        self._free -= turn.opened
        if turn.over:
            del self._jobs[job_id]
        if turn.opened < slots:
            self._able.discard(job_id)
