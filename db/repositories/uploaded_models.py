"""Models that owners uploaded."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import ColumnElement, delete, exists, or_, select, true, tuple_

from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository
from db.tables import Job, Model
from mallorn.core.errors import Conflict, NotFound

NAMED: Final = 10  # jobs that an error message names
_PLACE = (Model.created_at, Model.id, Model.owner)
_NEWEST = (Model.created_at.desc(), Model.id.desc(), Model.owner.desc())


class Models(Repository):
    """Models by SHA-256; each owner who uploads the same bytes has a row."""

    def add(self, model_id: str, owner: str, name: str, size_bytes: int) -> Model:
        """Store an uploaded model of an owner; a second upload changes nothing. Return its row."""
        values = {"id": model_id, "owner": owner, "name": name, "size_bytes": size_bytes}
        keys = ["id", "owner"]
        self.session.execute(self.insert(Model).values(values).on_conflict_do_nothing(index_elements=keys))
        return self.get(model_id, owner)

    def get(self, model_id: str, owner: str | None) -> Model:
        """Return a model. Raises NotFound, also for another owner's model."""
        query = select(Model).where(Model.id == model_id, _owned(owner)).order_by(Model.created_at).limit(1)
        model = self.session.scalars(query).one_or_none()
        if model is None:
            raise NotFound(f"there is no model {model_id}", hint="mallorn models")
        return model

    def hold(self, model_id: str) -> None:
        """Lock a model's bytes until the transaction ends, against storing, use and deletion."""
        super().hold(model_id)

    def delete(self, model_id: str, owner: str) -> bool:
        """Delete an owner's row of a model; return whether no owner has these bytes any more.

        Raises NotFound if there is none, Conflict while jobs of the owner refer to it.
        """
        self.hold(model_id)
        self.get(model_id, owner)
        users = Job.model_id == model_id, Job.owner == owner, Job.deleted_at.is_(None)
        query = select(Job.id).where(*users).order_by(Job.created_at.desc())
        if jobs := self.session.scalars(query).all():
            suffix = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
            subject = "these jobs refer" if jobs[1:] else "a job refers"
            raise Conflict(
                f"{subject} to model {model_id[:12]}: {', '.join(jobs[:NAMED])}{suffix}",
                hint=f"mallorn rm {' '.join(jobs[:NAMED])}",
            )
        self.changed(delete(Model).where(Model.id == model_id, Model.owner == owner))
        return self.forgotten(model_id)

    def forgotten(self, model_id: str) -> bool:
        """Return whether no owner has these bytes, and lock them so until the transaction ends."""
        self.hold(model_id)
        return not self.session.scalar(select(exists().where(Model.id == model_id)))

    def owners(self, model_ids: Collection[str]) -> Sequence[tuple[str, str]]:
        """Return pairs of model id and owner for these models."""
        query = select(Model.id, Model.owner).where(self.among(Model.id, model_ids))
        return [(row.id, row.owner) for row in self.session.execute(query)]

    def named(self, text: str) -> str:
        """Return the id of any owner's model with this id or name. Raises NotFound, Conflict if several."""
        query = select(Model.id).where(or_(Model.id == text, Model.name == text)).distinct()
        ids = self.session.scalars(query.order_by(Model.id)).all()
        if not ids:
            raise NotFound(f"there is no model {text}", hint="mallorn models")
        if len(ids) > 1:
            raise Conflict(f"{len(ids)} models are called {text}; give an id", hint="mallorn models --json")
        return ids[0]

    def list(self, owner: str | None, cursor: str | None = None, limit: int = 50) -> Page[Model]:
        """Return a page of an owner's models, newest first."""
        query = select(Model).where(_owned(owner)).order_by(*_NEWEST).limit(check_limit(limit) + 1)
        if cursor is not None:
            query = query.where(tuple_(*_PLACE) < tuple_(*decode_cursor(cursor, float, str, str)))
        models = self.session.scalars(query).all()
        return page(models, limit, lambda model: (model.created_at, model.id, model.owner))


def _owned(owner: str | None) -> ColumnElement[bool]:
    return true() if owner is None else Model.owner == owner
