"""Cost models: predictors of run times, their active versions, and a cache of costly features."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import zstandard
from sqlalchemy import ColumnElement, Row, Select, func, insert, or_, select, true, update
from sqlalchemy.orm import aliased

from mallorn.core.cost_model_name import PRIVATE, CostModelName, base_family, private_family_prefix
from mallorn.core.values.cost_model_version import CostModelVersion
from mallorn.db.repositories.base import Page, Repository, equalities, require_row
from mallorn.db.tables import CostModelRow, FeatureRow, TargetRow

_FEATURE_LEVEL: Final = 3  # of Zstandard
_MOST_FEATURE_BYTES: Final = 1 << 20
_KEY_COLUMNS: Final = ("workload_id", "target_id", "view", "version", "tvm_version", "candidate")


@dataclass(frozen=True, slots=True)
class NewCostModel:
    family: str
    target_id: int
    name: str
    seen_upto: int
    rows: int
    metrics: dict[str, object]
    blob: bytes
    parent_id: int | None = None
    snapshot: str | None = None  # its training rows; None: those of its family up to seen_upto


class Head(NamedTuple):
    """The active version of a cost model, and the rows that the newest version has seen."""

    id: int
    version: int
    seen_upto: int
    rows: int
    base: str | None  # the version of a base model that it extends
    view: str  # the feature view it reads; empty: an earlier version of Mallorn trained it


class BaseHead(NamedTuple):
    """The active version of a pretrained base model, without its bytes."""

    id: int
    name: CostModelName
    rows: int
    view: str  # the feature view it reads; empty: an earlier version of Mallorn trained it
    target: str


class CostModels(Repository):
    """Versions of cost models. Each family, target and name has at most one active one.

    A family is a set of workloads with a common cost model.
    """

    def add(self, new: NewCostModel, active: bool = True) -> CostModelRow:
        """Store a trained model as the next version; by default, activate it."""
        # Two trainers of one family wait for each other here.
        self.lock_target(new.target_id)
        is_same_model = _same_model_conditions(new.family, new.target_id, new.name)
        version = (self.session.scalar(select(func.max(CostModelRow.version)).where(*is_same_model)) or 0) + 1
        if active:
            self.execute_and_count(
                update(CostModelRow).where(*is_same_model, CostModelRow.active).values(active=False)
            )
        statement = insert(CostModelRow).values(**asdict(new), version=version, active=active)
        return self.session.scalars(statement.returning(CostModelRow)).one()

    def lock_target(self, target_id: int) -> None:
        """Lock a target's cost models (on SQLite, all rows) until the transaction ends."""
        lock = select(TargetRow.id).where(TargetRow.id == target_id).with_for_update(key_share=True)
        self.session.execute(lock).all()

    def latest(self, family: str, target_id: int, name: str) -> CostModelRow | None:
        """Return the active version, including its bytes, or None."""
        query = select(CostModelRow).where(*_same_model_conditions(family, target_id, name))
        return self.session.scalars(query.where(CostModelRow.active)).one_or_none()

    def head(self, family: str, target_id: int, name: str) -> Head | None:
        """Return the active version and the rows that the newest one has seen, or None.

        After a rollback, the newest version has seen more rows than the active one. The
        next training waits for more rows than that, or it would undo the rollback at once.
        """
        facts = CostModelRow.version, CostModelRow.seen_upto, CostModelRow.rows, CostModelRow.metrics
        columns = CostModelRow.id, CostModelRow.active, *facts
        query = select(*columns).where(*_same_model_conditions(family, target_id, name))
        query = query.order_by(CostModelRow.version.desc())
        newest = self.session.execute(query.limit(1)).one_or_none()
        if newest is None:
            return None
        is_active = CostModelRow.active
        active = newest if newest.active else self.session.execute(query.where(is_active)).one_or_none()
        if active is None:  # no version was good enough so far
            return None
        base, view = active.metrics.get("base"), str(active.metrics.get("view", ""))
        return Head(active.id, active.version, newest.seen_upto, newest.rows, base, view)

    def bases(self, op: str, target_id: int) -> Sequence[BaseHead]:
        """Return an operator's and target's active base models, newest first."""
        return self._list_bases(op, CostModelRow.target_id == target_id, CostModelRow.id.desc())

    def list_bases_of_other_targets(self, op: str, target_id: int) -> Sequence[BaseHead]:
        """Return an operator's active bases of other targets, most training rows first."""
        order = CostModelRow.rows.desc(), CostModelRow.id.desc()
        return self._list_bases(op, CostModelRow.target_id != target_id, *order)

    def _list_bases(
        self, op: str, condition: ColumnElement[bool], *order: ColumnElement[Any]
    ) -> list[BaseHead]:
        own = CostModelRow
        columns = own.id, own.family, own.name, own.version, own.rows, own.metrics
        of_op = own.family == base_family(op), own.active, condition
        query = select(*columns, TargetRow.text).where(*of_op).order_by(*order)
        query = query.join(TargetRow, TargetRow.id == own.target_id)
        bases: list[BaseHead] = []
        for row in self.session.execute(query):
            name = CostModelName(row.family, row.name, row.version)
            bases.append(BaseHead(row.id, name, row.rows, str(row.metrics.get("view", "")), row.text))
        return bases

    def has_trained_on(self, snapshot: str) -> bool:
        query = select(CostModelRow.id).where(CostModelRow.snapshot == snapshot).limit(1)
        return self.session.scalar(query) is not None

    def get(self, cost_model_id: int) -> CostModelRow:
        return self.session.get_one(CostModelRow, cost_model_id)


def _same_model_conditions(family: str, target_id: int, name: str) -> tuple[ColumnElement[bool], ...]:
    return CostModelRow.family == family, CostModelRow.target_id == target_id, CostModelRow.name == name


class CostModelVersions(Repository):
    """Reads and activates cost-model versions. Rounds refer to them, so all are kept."""

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
        """Return a page of versions, newest first, without other owners' private ones."""
        row = CostModelRow
        columns = row.family, TargetRow.key, row.name, row.version, row.active
        conditions = equalities(columns, (family, target, name, version, active))
        if cursor is not None:
            conditions.append(CostModelRow.id < Page.decode_cursor(cursor, int)[0])
        query = _versions().where(*conditions, _is_visible_to(owner))
        query = query.order_by(CostModelRow.id.desc()).limit(limit + 1)
        versions = [_version(row) for row in self.session.execute(query)]
        return Page.of(versions, limit, lambda row: (row.id,))

    def get(self, version_id: int, owner: str | None = None) -> CostModelVersion:
        """Return a version. Raises NotFound if there is none that this owner may see."""
        query = _versions().where(CostModelRow.id == version_id, _is_visible_to(owner))
        row = self.session.execute(query).one_or_none()
        return _version(require_row(row, f"cost model {version_id}", "mallorn costmodels list"))

    def activate(self, version_id: int, owner: str | None = None) -> CostModelVersion:
        """Make this version active for new rounds and training.

        Rounds that exist already keep their version; later versions are not deleted.
        Raises NotFound if there is no such version that this owner may see.
        """
        self.get(version_id, owner)
        model = self.session.get_one(CostModelRow, version_id)
        CostModels(self.session).lock_target(model.target_id)
        line = update(CostModelRow).where(*_same_model_conditions(model.family, model.target_id, model.name))
        # Two statements, because a model may never have two active versions.
        self.execute_and_count(line.where(CostModelRow.active).values(active=False))
        self.execute_and_count(line.where(CostModelRow.id == version_id).values(active=True))
        return self.get(version_id, owner)


def _is_visible_to(owner: str | None) -> ColumnElement[bool]:
    if owner is None:
        return true()
    family = CostModelRow.family
    return or_(~family.startswith(PRIVATE), family.startswith(private_family_prefix(owner)))


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


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """Cache key except the candidate: workload, target, view and version, and compiler."""

    workload_id: int
    target_id: int
    view: str
    version: int
    tvm_version: str


class Features(Repository):
    """Features by candidate, cached as little-endian float32; None if it cannot be lowered."""

    def read(self, source: FeatureSource, candidates: Collection[str]) -> dict[str, bytes | None]:
        conditions = [getattr(FeatureRow, name) == value for name, value in asdict(source).items()]
        unpack = zstandard.ZstdDecompressor().decompress
        is_candidate = self.is_among(FeatureRow.candidate, candidates)
        query = select(FeatureRow.candidate, FeatureRow.numbers).where(*conditions, is_candidate)
        return {
            key: None if numbers is None else unpack(numbers, max_output_size=_MOST_FEATURE_BYTES)
            for key, numbers in self.session.execute(query)
        }

    def store(self, source: FeatureSource, rows: Mapping[str, bytes | None]) -> None:
        """Store features by candidate; rows that exist already do not change."""
        pack = zstandard.ZstdCompressor(level=_FEATURE_LEVEL).compress
        values = [
            asdict(source) | {"candidate": key, "numbers": None if row is None else pack(row)}
            for key, row in sorted(rows.items())
        ]
        if values:
            statement = self.insert(FeatureRow).on_conflict_do_nothing(index_elements=_KEY_COLUMNS)
            self.execute_for_rows(statement, values)
