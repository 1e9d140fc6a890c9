"""What rows say once a file that they name is found missing or damaged."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sqlalchemy import select, update

from db.clock import now
from db.repositories.base import Repository
from db.repositories.jobs import Jobs
from db.repositories.model_versions import ModelVersions
from db.repositories.models import Models
from db.repositories.warnings import Warn, Warnings
from db.tables import CostModelRow, Job, Model
from mallorn.core.errors import Conflict

LOST_MODEL: Final = Warn(
    "model file", "the uploaded model was found missing or damaged", "submit the same model file again"
)
LOST_EXPORT: Final = Warn(
    "exported files", "they were found missing", "mallorn resume JOB --trials N   exports them again"
)


class Repairs(Repository):
    """No measurement, schedule or version of a cost model is deleted."""

    def lose_model(self, model_id: str) -> Sequence[str]:
        """Tell the jobs of a model that its file is gone; which they are. Rows without a job go."""
        for owner in self.session.scalars(select(Model.owner).where(Model.id == model_id)).all():
            with suppress(Conflict):
                Models(self.session).delete(model_id, owner)
        users = Job.model_id == model_id, Job.deleted_at.is_(None)
        jobs = self.session.scalars(select(Job.id).where(*users).order_by(Job.id)).all()
        for job_id in jobs:
            Warnings(self.session).add(job_id, LOST_MODEL)
        return jobs

    def lost_models(self) -> set[str]:
        """Models of which every job has been told that the file is gone."""
        query = select(Job.model_id, Job.warnings).where(Job.deleted_at.is_(None))
        told: set[str] = set()
        untold: set[str] = set()
        for model_id, warnings in self.session.execute(query):
            knows = any(warning.source == LOST_MODEL.source for warning in warnings)
            (told if knows else untold).add(model_id)
        return told - untold

    def lose_export(self, job_id: str) -> None:
        """The job has no exported files from now on, and says why."""
        Jobs(self.session).record(job_id, export_uri=None, export_deleted_at=now())
        Warnings(self.session).add(job_id, LOST_EXPORT)

    def retire(self, version_id: int, instead: int | None) -> None:
        """Make an earlier version of a cost model active in place of this one; None: no version is."""
        if instead is not None:
            ModelVersions(self.session).activate(instead)
            return
        retired = update(CostModelRow).where(CostModelRow.id == version_id)
        self.changed(retired.values(active=False))
