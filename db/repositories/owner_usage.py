"""An owner's use of quotas, counted in the transaction that asks for more."""

from sqlalchemy import ColumnElement, func, select

from db.repositories.base import Repository
from db.repositories.jobs import ACTIVE
from db.tables import Job, Measurement, Model
from mallorn.core.states import MeasurementKind


class Usage(Repository):
    def hold(self, owner: str) -> None:
        """Lock an owner's usage until the transaction ends, so that no other request counts it."""
        super().hold(f"usage of {owner}")

    def jobs(self, owner: str) -> int:
        """Return the number of an owner's jobs that have neither ended nor been paused."""
        return self.session.scalar(select(func.count()).where(*_active(owner))) or 0

    def trials(self, owner: str) -> int:
        """Return how many trials active jobs may still make, without jobs that have no trial limit."""
        budgets = self.session.scalar(select(func.sum(Job.trials)).where(*_active(owner))) or 0
        limited_jobs = select(Job.id).where(*_active(owner), Job.trials.is_not(None))
        trial = Measurement.kind == MeasurementKind.TRIAL, Measurement.job_id.in_(limited_jobs)
        return max(0, budgets - (self.session.scalar(select(func.count()).where(*trial)) or 0))

    def model_bytes(self, owner: str) -> int:
        """Return the total size of an owner's uploaded models in bytes."""
        return self.session.scalar(select(func.sum(Model.size_bytes)).where(Model.owner == owner)) or 0


def _active(owner: str) -> tuple[ColumnElement[bool], ...]:
    return Job.owner == owner, Job.state.in_(ACTIVE)
