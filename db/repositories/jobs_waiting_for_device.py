"""Jobs that wait for a device of their target."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import func, select, update

from db.repositories.base import Repository, said
from db.repositories.devices import alike, like_of
from db.repositories.jobs import ACTIVE
from db.tables import Context, Device, Event, Job, TargetRow
from mallorn.core.states import SEARCH, ZERO_SHOT, Cause

# Zero-shot jobs only return stored schedules, so they need no device.
_RUNS: Final = func.coalesce(Job.options["mode"].as_string(), SEARCH) != ZERO_SHOT


class JobsWaitingForDevice(Repository):
    """Reads which devices jobs need, and for how long they have had none."""

    def targets(self) -> Sequence[str]:
        """Return the targets, as canonical text, of active jobs that run on devices."""
        query = select(TargetRow.text).join(Job, Job.target_id == TargetRow.id)
        query = query.where(Job.state.in_(ACTIVE), _RUNS)
        return self.session.scalars(query.distinct().order_by(TargetRow.text)).all()

    def one_of_each(self, target_ids: Collection[int]) -> Sequence[str]:
        """Return the id of one active job for each of these targets that has any."""
        active = Job.target_id.in_(target_ids), Job.state.in_(ACTIVE)
        return self.session.scalars(select(func.min(Job.id)).where(*active).group_by(Job.target_id)).all()

    def tell(self, target: str, reason: str, why_not_here: str) -> None:
        """Set the reason of a target's active jobs: they wait for a device that cannot run here."""
        target_id = select(TargetRow.id).where(TargetRow.text == target).scalar_subquery()
        conditions = Job.target_id == target_id, Job.state.in_(ACTIVE), _RUNS, Job.reason != reason
        self.changed(update(Job).where(*conditions).values(said(reason, Cause.NOT_HERE, why_not_here)))

    def since(self, job: Job) -> float:
        """Return the later of the job's last event and the last contact with a suitable device."""
        events = select(func.max(Event.created_at)).where(Event.job_id == job.id)
        last_seen = select(func.max(Device.last_seen)).where(Device.target_id == job.target_id)
        if job.context_id is not None:
            last_seen = last_seen.where(alike(like_of(self.session.get_one(Context, job.context_id))))
        times = self.session.scalar(events), self.session.scalar(last_seen)
        return max(job.created_at, *(time for time in times if time is not None), 0.0)
