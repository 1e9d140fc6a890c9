"""Leases on the stages of a job that one worker does alone: import and finish."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select, update

from db.clock import now
from db.repositories.base import Repository, said, until
from db.tables import Job
from mallorn.core.states import JobState

STAGES = (JobState.IMPORTING, JobState.FINISHING)
MAX_LOSSES = 3


@dataclass(frozen=True, slots=True)
class LostStages:
    """Jobs whose stage broke off: those to be sent again, and those that failed three times."""

    returned: list[str]
    failed: list[str]


class Stages(Repository):
    """The token of a stage is `Job.attempts`: it only ever grows, so no old worker can pass for a new one."""

    def claim_stage(self, job_id: str, stage_state: JobState, worker: str, lease_sec: float) -> int | None:
        """Take the stage for `lease_sec` if nobody holds it; the token, or None."""
        free = Job.id == job_id, Job.state == stage_state, _unheld()
        taken = {"attempts": Job.attempts + 1, "stage_worker": worker, "stage_lease_until": until(lease_sec)}
        return self.session.execute(
            update(Job).where(*free).values(taken).returning(Job.attempts)
        ).scalar_one_or_none()

    def renew_stage(self, job_id: str, attempt: int, lease_sec: float) -> bool:
        """False when the stage is no longer ours: taken back, paused or cancelled."""
        mine = Job.id == job_id, Job.attempts == attempt, Job.stage_lease_until.is_not(None)
        return self.changed(update(Job).where(*mine).values(stage_lease_until=until(lease_sec))) == 1

    def release_stage(self, job_id: str, attempt: int) -> bool:
        """Give the stage back unfinished, for another worker to take."""
        mine = Job.id == job_id, Job.attempts == attempt, Job.stage_lease_until.is_not(None)
        freed = {"stage_lease_until": None, "stage_worker": None, "stage_sent_at": 0.0}
        return self.changed(update(Job).where(*mine).values(freed)) == 1

    def waiting_stages(self, older_than_sec: float) -> Sequence[Job]:
        """Jobs that wait for a worker to import or finish them, whose last message went out long ago."""
        quiet = func.coalesce(Job.stage_sent_at, Job.created_at) < until(-older_than_sec)
        query = select(Job).where(Job.state.in_((JobState.QUEUED, *STAGES)), _unheld(), quiet)
        return self.session.scalars(query.order_by(Job.priority.desc(), Job.created_at, Job.id)).all()

    def mark_sent(self, job_ids: Sequence[str]) -> None:
        """A message for the stage of these jobs goes out now."""
        self.changed(update(Job).where(Job.id.in_(job_ids)).values(stage_sent_at=now()))

    def expire_stages(self, max_losses: int = MAX_LOSSES) -> LostStages:
        """Take stages back from workers that went silent; fail the job after `max_losses` of them."""
        silent = Job.state.in_(STAGES), Job.stage_lease_until < now()
        return self._lose(silent, _SILENT.format(max_losses), max_losses)

    def lose_stage(self, job_id: str, attempt: int, reason: str, max_losses: int = MAX_LOSSES) -> LostStages:
        """Count a loss of this attempt's stage now: it ended in a way that the next try may not."""
        mine = Job.id == job_id, Job.attempts == attempt, Job.stage_lease_until.is_not(None)
        return self._lose(mine, reason, max_losses)

    def _lose(self, which: tuple[ColumnElement[bool], ...], reason: str, max_losses: int) -> LostStages:
        self.lock_jobs(select(Job.id).where(*which))
        last = Job.stage_losses + 1 >= max_losses
        freed = {
            "stage_lease_until": None,
            "stage_worker": None,
            "stage_sent_at": 0.0,
            "stage_losses": Job.stage_losses + 1,
        }
        ended = {"state": JobState.FAILED, "resume_state": Job.state, "finished_at": now()}
        failed = freed | ended | said(reason)
        lost = update(Job).where(*which, last).values(failed).returning(Job.id)
        kept = update(Job).where(*which).values(freed).returning(Job.id)
        failed_ids = sorted(self.session.scalars(lost))
        return LostStages(returned=sorted(self.session.scalars(kept)), failed=failed_ids)


_SILENT = "its worker died or went silent {} times in a row"


def _unheld() -> ColumnElement[bool]:
    return or_(Job.stage_lease_until.is_(None), Job.stage_lease_until < now())
