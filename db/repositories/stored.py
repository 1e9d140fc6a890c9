"""What rows say must lie in the artifact store, or hold in bytes of their own."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Select, select

from db.repositories.base import Repository
from db.tables import CostModelRow, Job, Model
from mallorn.core.versions import VersionName


class StoredCostModel(NamedTuple):
    """A version and its bytes."""

    id: int
    name: VersionName
    blob: bytes


class StoredFiles(Repository):
    """All that can be missing or damaged without the database noticing."""

    def models(self) -> Sequence[str]:
        """The ids of all uploaded models: the SHA-256 of their bytes."""
        return self.session.scalars(select(Model.id).distinct().order_by(Model.id)).all()

    def exports(self) -> dict[str, str]:
        """Where the files of each finished job lie, by its id."""
        kept = Job.export_uri.is_not(None), Job.deleted_at.is_(None), Job.export_deleted_at.is_(None)
        rows = self.session.execute(select(Job.id, Job.export_uri).where(*kept).order_by(Job.id))
        return {job_id: uri for job_id, uri in rows if uri is not None}

    def cost_models(self) -> Iterator[StoredCostModel]:
        """Every active version, one at a time: their bytes together may be many."""
        query = select(CostModelRow.id).where(CostModelRow.active).order_by(CostModelRow.id)
        return self._one_by_one(query)

    def cost_models_before(self, version_id: int) -> Iterator[StoredCostModel]:
        """The earlier versions of its line, the newest first."""
        own = self.session.get_one(CostModelRow, version_id)
        same = CostModelRow.family == own.family, CostModelRow.target_id == own.target_id
        earlier = CostModelRow.name == own.name, CostModelRow.version < own.version
        query = select(CostModelRow.id).where(*same, *earlier)
        return self._one_by_one(query.order_by(CostModelRow.version.desc()))

    def _one_by_one(self, query: Select[int]) -> Iterator[StoredCostModel]:
        for row_id in self.session.scalars(query).all():
            row = self.session.get_one(CostModelRow, row_id)
            yield StoredCostModel(row.id, VersionName(row.family, row.name, row.version), row.blob)
            self.session.expunge(row)
