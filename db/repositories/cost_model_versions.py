"""List cost-model versions for users, and activate one of them, such as an earlier version."""

from typing import Any

from sqlalchemy import ColumnElement, Row, Select, or_, select, true, update
from sqlalchemy.orm import aliased

from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository
from db.repositories.cost_models import CostModels
from db.tables import CostModelRow, TargetRow
from mallorn.core.cost_model_name import PRIVATE, CostModelName, scope_of
from mallorn.core.errors import NotFound
from mallorn.core.values.cost_model_version import CostModelVersion


class CostModelVersions(Repository):
    """Reads and activates cost-model versions. None is ever deleted, because rounds refer to them."""

    def page(
        self,
        owner: str | None = None,
        *,
        family: str | None = None,
        target: str | None = None,
        name: str | None = None,
        version: int | None = None,
        active: bool | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[CostModelVersion]:
        """Return a page of versions, newest first, without private ones of others; `target` is a key."""
        filters: list[tuple[Any, Any]] = [
            (CostModelRow.family, family),
            (TargetRow.key, target),
            (CostModelRow.name, name),
            (CostModelRow.version, version),
            (CostModelRow.active, active),
        ]
        conditions: list[ColumnElement[bool]] = [
            column == value for column, value in filters if value is not None
        ]
        if cursor is not None:
            conditions.append(CostModelRow.id < decode_cursor(cursor, int)[0])
        query = (
            _versions()
            .where(*conditions, _is_visible_to(owner))
            .order_by(CostModelRow.id.desc())
            .limit(check_limit(limit) + 1)
        )
        versions = [_version(row) for row in self.session.execute(query)]
        return page(versions, limit, lambda row: (row.id,))

    def get(self, version_id: int, owner: str | None = None) -> CostModelVersion:
        """Return a version. Raises NotFound, also if it was trained for another owner's private jobs."""
        query = _versions().where(CostModelRow.id == version_id, _is_visible_to(owner))
        row = self.session.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"there is no cost model {version_id}", hint="mallorn costmodels list")
        return _version(row)

    def activate(self, version_id: int, owner: str | None = None) -> CostModelVersion:
        """Make this version active for new rounds and training. Raises NotFound.

        Rounds that exist already keep their version; later versions are not deleted.
        """
        self.get(version_id, owner)
        model = self.session.get_one(CostModelRow, version_id)
        CostModels(self.session).lock_target(model.target_id)
        same_name = CostModelRow.target_id == model.target_id, CostModelRow.name == model.name
        line = update(CostModelRow).where(*same_name, CostModelRow.family == model.family)
        # Two statements, because a model may never have two active versions.
        self.changed(line.where(CostModelRow.active).values(active=False))
        self.changed(line.where(CostModelRow.id == version_id).values(active=True))
        return self.get(version_id, owner)


def _is_visible_to(owner: str | None) -> ColumnElement[bool]:
    if owner is None:
        return true()
    family = CostModelRow.family
    return or_(~family.startswith(PRIVATE), family.startswith(scope_of(owner)))


def _versions() -> Select[*tuple[Any, ...]]:
    own, parent = CostModelRow, aliased(CostModelRow)
    model = own.family, own.name, own.version, own.id, own.active
    training = own.snapshot, own.seen_upto, own.rows, own.metrics, own.created_at
    parents = own.parent_id, parent.family.label("f"), parent.name.label("n"), parent.version.label("v")
    query = select(*model, *training, *parents, TargetRow.text.label("target"))
    query = query.join(TargetRow, TargetRow.id == own.target_id)
    return query.join(parent, parent.id == own.parent_id, isouter=True)


def _version(row: Row[*tuple[Any, ...]]) -> CostModelVersion:
    fields = row._mapping
    parent = None if row.f is None else str(CostModelName(row.f, row.n, row.v))
    full_name = str(CostModelName(row.family, row.name, row.version))
    return CostModelVersion.model_validate({**fields, "full_name": full_name, "parent": parent})
