"""Jobs that wait for a device of their target."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import func, select, update

from db.repositories.base import Repository, said
from db.repositories.devices import alike, like_of
from db.repositories.jobs import ACTIVE
from db.tables import Context, Device, Event, Job, TargetRow
from mallorn.core.states import SEARCH, ZERO_SHOT, Cause

# Jobs that hand out what is known run nothing.
_RUNS: Final = func.coalesce(Job.options["mode"].as_string(), SEARCH) != ZERO_SHOT


class JobsWaitingForDevice(Repository):
    """What devices are wanted, and since when in vain."""

    def targets(self) -> Sequence[str]:
        """The targets, in canonical text, of jobs that are not over and not paused."""
        query = select(TargetRow.text).join(Job, Job.target_id == TargetRow.id)
        query = query.where(Job.state.in_(ACTIVE), _RUNS)
        return self.session.scalars(query.distinct().order_by(TargetRow.text)).all()

    def one_of_each(self, target_ids: Collection[int]) -> Sequence[str]:
        """Return an active job of each of these targets that has one."""
        theirs = Job.target_id.in_(target_ids), Job.state.in_(ACTIVE)
        return self.session.scalars(select(func.min(Job.id)).where(*theirs).group_by(Job.target_id)).all()

    def tell(self, target: str, reason: str, why_not_here: str) -> None:
        """Say to all active jobs of a target what they wait for: a device that this machine cannot run."""
        target_id = select(TargetRow.id).where(TargetRow.text == target).scalar_subquery()
        theirs = Job.target_id == target_id, Job.state.in_(ACTIVE), _RUNS, Job.reason != reason
        self.changed(update(Job).where(*theirs).values(said(reason, Cause.NOT_HERE, why_not_here)))

    def since(self, job: Job) -> float:
        """When anything last happened to the job, or a device that could serve it was last seen."""
        events = select(func.max(Event.created_at)).where(Event.job_id == job.id)
        seen = select(func.max(Device.last_seen)).where(Device.target_id == job.target_id)
        if job.context_id is not None:
            seen = seen.where(alike(like_of(self.session.get_one(Context, job.context_id))))
        times = self.session.scalar(events), self.session.scalar(seen)
        return max(job.created_at, *(known_sec for known_sec in times if known_sec is not None), 0.0)
