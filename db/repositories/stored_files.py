"""Uploaded models, references to stored files, and repairs after a file was lost."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Select, delete, exists, or_, select, true, tuple_, update

from mallorn.core.cost_model_name import CostModelName
from mallorn.core.errors import Conflict, NotFound
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Page, Repository, require_row
from mallorn.db.repositories.cost_models import CostModelVersions
from mallorn.db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import CostModelRow, Job, Model

NAMED: Final = 10  # jobs that an error message names
_PLACE = (Model.created_at, Model.id, Model.owner)
_NEWEST = (Model.created_at.desc(), Model.id.desc(), Model.owner.desc())
LOST_MODEL: Final = NewJobWarning(
    "model file", "the uploaded model file is missing or damaged", "submit the same model file again"
)
LOST_EXPORT: Final = NewJobWarning(
    "exported files", "the exported files are missing", "mallorn resume JOB --trials N   exports them again"
)


class Models(Repository):
    """Models by SHA-256; each owner who uploads the same bytes has a row."""

    def add(self, model_id: str, owner: str, name: str, size_bytes: int) -> Model:
        """Store an owner's uploaded model, if it is new; return its row."""
        values = {"id": model_id, "owner": owner, "name": name, "size_bytes": size_bytes}
        keys = ["id", "owner"]
        self.session.execute(self.insert(Model).values(values).on_conflict_do_nothing(index_elements=keys))
        return self.get(model_id, owner)

    def get(self, model_id: str, owner: str | None) -> Model:
        """Return a model. Raises NotFound, also for another owner's model."""
        query = select(Model).where(Model.id == model_id, _owned(owner)).order_by(Model.created_at).limit(1)
        return require_row(self.session.scalars(query).one_or_none(), f"model {model_id}", "mallorn models")

    def lock_model(self, model_id: str) -> None:
        """Lock a model until commit, so that others cannot store, use or delete it."""
        super().lock_name(model_id)

    def delete(self, model_id: str, owner: str) -> bool:
        """Delete an owner's row of a model; return whether no other owner has its bytes.

        Raises NotFound if there is none, Conflict while jobs of the owner refer to it.
        """
        self.lock_model(model_id)
        self.get(model_id, owner)
        users = Job.model_id == model_id, Job.owner == owner, Job.deleted_at.is_(None)
        query = select(Job.id).where(*users).order_by(Job.created_at.desc())
        if jobs := self.session.scalars(query).all():
            suffix = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
            subject = "these jobs refer" if jobs[1:] else "a job refers"
            message = f"{subject} to model {model_id[:12]}: {', '.join(jobs[:NAMED])}{suffix}"
            raise Conflict(message, hint=f"mallorn jobs rm {' '.join(jobs[:NAMED])}")
        self.execute_and_count(delete(Model).where(Model.id == model_id, Model.owner == owner))
        return self.lock_if_unowned(model_id)

    def lock_if_unowned(self, model_id: str) -> bool:
        """Lock these bytes until the transaction ends; return whether no owner has them."""
        self.lock_model(model_id)
        return not self.session.scalar(select(exists().where(Model.id == model_id)))

    def owners(self, model_ids: Collection[str]) -> Sequence[tuple[str, str]]:
        query = select(Model.id, Model.owner).where(self.is_among(Model.id, model_ids))
        return [(row.id, row.owner) for row in self.session.execute(query)]

    def find_id(self, text: str) -> str:
        """Return the id of any owner's model with this id or name. Raises NotFound if there
        is none, Conflict if there are several."""
        query = select(Model.id).where(or_(Model.id == text, Model.name == text)).distinct()
        ids = self.session.scalars(query.order_by(Model.id)).all()
        if not ids:
            raise NotFound(f"there is no model {text}", hint="mallorn models")
        if len(ids) > 1:
            raise Conflict(f"{len(ids)} models are called {text}; give an id", hint="mallorn models --json")
        return ids[0]

    def list(self, owner: str | None, cursor: str | None = None, limit: int = 50) -> Page[Model]:
        """Return a page of an owner's models, newest first."""
        query = select(Model).where(_owned(owner)).order_by(*_NEWEST).limit(limit + 1)
        if cursor is not None:
            query = query.where(tuple_(*_PLACE) < tuple_(*Page.decode_cursor(cursor, float, str, str)))
        models = self.session.scalars(query).all()
        return Page.of(models, limit, lambda model: (model.created_at, model.id, model.owner))


def _owned(owner: str | None) -> ColumnElement[bool]:
    return true() if owner is None else Model.owner == owner


class Repairs(Repository):
    """Records lost files. Deletes no measurement, schedule or cost-model version."""

    def record_lost_model(self, model_id: str) -> Sequence[str]:
        """Warn jobs that their model's file is lost; return their ids. Also delete the
        model's rows of owners whose jobs do not use it."""
        for owner in self.session.scalars(select(Model.owner).where(Model.id == model_id)).all():
            with suppress(Conflict):
                Models(self.session).delete(model_id, owner)
        users = Job.model_id == model_id, Job.deleted_at.is_(None)
        jobs = self.session.scalars(select(Job.id).where(*users).order_by(Job.id)).all()
        for job_id in jobs:
            Warnings(self.session).add(job_id, LOST_MODEL)
        return jobs

    def lost_models(self) -> set[str]:
        """Return the models whose jobs all have the warning that the file is lost."""
        query = select(Job.model_id, Job.warnings).where(Job.deleted_at.is_(None))
        with_warning: set[str] = set()
        without_warning: set[str] = set()
        for model_id, warnings in self.session.execute(query):
            has_warning = any(warning.source == LOST_MODEL.source for warning in warnings)
            (with_warning if has_warning else without_warning).add(model_id)
        return with_warning - without_warning

    def record_lost_export(self, job_id: str) -> None:
        """Record that a job's exported files are lost, and add a warning to the job."""
        Jobs(self.session).store_report_columns(job_id, export_uri=None, export_deleted_at=now())
        Warnings(self.session).add(job_id, LOST_EXPORT)

    def replace_active_version(self, version_id: int, instead: int | None) -> None:
        """Deactivate this version, and activate version `instead` unless it is None."""
        if instead is not None:
            CostModelVersions(self.session).activate(instead)
            return
        version = update(CostModelRow).where(CostModelRow.id == version_id)
        self.execute_and_count(version.values(active=False))


class StoredCostModel(NamedTuple):
    id: int
    name: CostModelName
    blob: bytes


class StoredFiles(Repository):
    """Reads references to files and bytes, for checks that these exist and are undamaged."""

    def models(self) -> Sequence[str]:
        """Return the ids of all uploaded models, which are the SHA-256 of their bytes."""
        return self.session.scalars(select(Model.id).distinct().order_by(Model.id)).all()

    def exports(self) -> dict[str, str]:
        """Return the URI of the exported files of each job that has any, by job id."""
        conditions = Job.export_uri.is_not(None), Job.deleted_at.is_(None), Job.export_deleted_at.is_(None)
        rows = self.session.execute(select(Job.id, Job.export_uri).where(*conditions).order_by(Job.id))
        return {job_id: uri for job_id, uri in rows if uri is not None}

    def cost_models(self) -> Iterator[StoredCostModel]:
        """Yield every active version, one at a time: all may not fit in memory."""
        query = select(CostModelRow.id).where(CostModelRow.active).order_by(CostModelRow.id)
        return self._one_by_one(query)

    def cost_models_before(self, version_id: int) -> Iterator[StoredCostModel]:
        """Yield the earlier versions of the same cost model, newest first."""
        version = self.session.get_one(CostModelRow, version_id)
        same_family = CostModelRow.family == version.family, CostModelRow.target_id == version.target_id
        is_earlier = CostModelRow.name == version.name, CostModelRow.version < version.version
        query = select(CostModelRow.id).where(*same_family, *is_earlier)
        return self._one_by_one(query.order_by(CostModelRow.version.desc()))

    def _one_by_one(self, query: Select[int]) -> Iterator[StoredCostModel]:
        for row_id in self.session.scalars(query).all():
            row = self.session.get_one(CostModelRow, row_id)
            yield StoredCostModel(row.id, CostModelName(row.family, row.name, row.version), row.blob)
            self.session.expunge(row)
