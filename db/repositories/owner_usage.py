"""What an owner takes up: counted where more of it is asked for, in the same transaction."""

from sqlalchemy import ColumnElement, func, select

from db.repositories.base import Repository
from db.repositories.jobs import ACTIVE
from db.tables import Job, Measurement, Model
from mallorn.core.states import MeasurementKind


class Usage(Repository):
    def hold(self, owner: str) -> None:
        """Let nobody else count this owner's until the transaction ends."""
        super().hold(f"usage of {owner}")

    def jobs(self, owner: str) -> int:
        """Jobs that have neither ended nor been paused."""
        return self.session.scalar(select(func.count()).where(*_active(owner))) or 0

    def trials(self, owner: str) -> int:
        """Trials that those jobs may still make; what a job without a number will make, nobody knows."""
        budgets = self.session.scalar(select(func.sum(Job.trials)).where(*_active(owner))) or 0
        numbered = select(Job.id).where(*_active(owner), Job.trials.is_not(None))
        trial = Measurement.kind == MeasurementKind.TRIAL, Measurement.job_id.in_(numbered)
        return max(0, budgets - (self.session.scalar(select(func.count()).where(*trial)) or 0))

    def model_bytes(self, owner: str) -> int:
        """Bytes of uploaded models."""
        return self.session.scalar(select(func.sum(Model.size_bytes)).where(Model.owner == owner)) or 0


def _active(owner: str) -> tuple[ColumnElement[bool], ...]:
    return Job.owner == owner, Job.state.in_(ACTIVE)
