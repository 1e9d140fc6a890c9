"""Workloads, the tensor programs of the dataset, and sketches: their undecided schedules."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import and_, exists, func, or_, select, update

from mallorn.core.states import WRITE
from mallorn.core.values.candidate import Sketch, pack_choices, unpack_choices
from mallorn.db.measurement_codec import pack_text, unpack_text
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.snapshots import SnapshotRows
from mallorn.db.tables import Job, Model, SketchRow, Task, Workload

KEPT: Final = 2**63 - 1  # larger than all ids: only private jobs use the workload
REPLACED: Final = ("name", "op", "structure", "flops", "tir", "args", "features", "tvm_version")
_PLACE: Final = ("ordinal", "space", "tvm_version")  # of a sketch in the design space of some code
REPLACED_OF_SKETCH: Final = ("trace", "choices", "ordinal", "space", "tvm_version", "imported")


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A workload that an import extracted; `tir` is tvm.ir.save_json of its module."""

    key: str
    name: str
    op: str
    structure: str
    flops: float
    tir: str
    args: Mapping[str, object]
    features: Mapping[str, object]
    tvm_version: str


class Workloads(Repository):
    """Workloads, each stored once under its key."""

    def ensure_many(
        self, workloads: Collection[NewWorkload], *, private: bool = False, code: str | None = None
    ) -> dict[str, int]:
        """Insert new workloads, in the order of keys, to avoid deadlocks; return all ids by key.

        A workload extracted here, by `code`, replaces one that was imported or extracted by
        other code; an imported one (`code` None) does not. A workload of private jobs
        becomes shared once a job that is not private, or an import, adds it, too, and is
        replaced by it: a program contains its model's input names, which must not become shared.
        """
        columns = {"kept_upto": KEPT if private else 0, "code": code}
        in_order = sorted(workloads, key=lambda new: new.key)
        keys = [new.key for new in in_order]
        values = [asdict(new) | columns | {"tir": pack_text(new.tir)} for new in in_order]
        insert = self.insert(Workload)
        new_row = insert.excluded
        is_kept = Workload.kept_upto == KEPT
        is_other_code = Workload.code.is_distinct_from(new_row.code)
        is_other_version = Workload.tvm_version != new_row.tvm_version
        is_older = and_(new_row.code.is_not(None), or_(is_other_code, is_other_version))
        is_replaced = and_(is_kept, is_older) if private else or_(is_kept, is_older)
        replaced = {name: new_row[name] for name in (*REPLACED, "code")}
        upsert = insert.on_conflict_do_update(index_elements=["key"], set_=replaced, where=is_replaced)
        if values:
            self.execute_for_rows(upsert, values)
        if not private:
            # Shared from now on. Snapshots still leave out the rows that exist now.
            was_private = self.is_among(Workload.key, keys), Workload.kept_upto == KEPT
            if self.session.scalar(select(exists().where(*was_private))):
                upto = SnapshotRows(self.session).find_newest_settled_id()
                self.execute_and_count(update(Workload).where(*was_private).values(kept_upto=upto))
        return self.ids(keys)

    def ids(self, keys: Collection[str]) -> dict[str, int]:
        """Return ids by key, without keys that are not in the dataset."""
        query = select(Workload.key, Workload.id).where(self.is_among(Workload.key, keys))
        return dict(self.session.execute(query).all())

    def get(self, workload_id: int) -> Workload:
        return self.session.get_one(Workload, workload_id)

    def get_many(self, workload_ids: Collection[int]) -> Sequence[Workload]:
        query = select(Workload).where(self.is_among(Workload.id, workload_ids)).order_by(Workload.id)
        return self.session.scalars(query).all()

    def of_structure(self, structure: str, owner: str) -> Sequence[Workload]:
        """Return workloads of this loop structure, shared or the owner's, oldest first."""
        own_workloads = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(Job.owner == owner)
        query = select(Workload).where(
            Workload.structure == structure, or_(Workload.kept_upto != KEPT, Workload.id.in_(own_workloads))
        )
        return self.session.scalars(query.order_by(Workload.id)).all()


def tir_of(workload: Workload) -> str:
    """Return the program as JSON for tvm.ir.load_json."""
    return unpack_text(workload.tir)


class Networks(Repository):
    """Reads the workloads of all owners' models, without private jobs and those that do not
    write to the dataset."""

    def call_counts_by_network(self) -> Mapping[str, Mapping[str, int]]:
        """Return how often each network calls each workload, by name and workload key."""
        name = func.coalesce(func.min(Model.name), Job.model_id)
        query = (
            select(Job.model_id, name, Workload.key, func.max(Task.weight))
            .join(Task, Task.job_id == Job.id)
            .join(Workload, Workload.id == Task.workload_id)
            .join(Model, Model.id == Job.model_id, isouter=True)
            .where(~Job.private, Job.dataset == WRITE, Task.weight > 0)
            .group_by(Job.model_id, Workload.key)
            .order_by(Job.model_id, Workload.key)
        )
        weights = defaultdict[str, dict[str, int]](dict)
        names: dict[str, str] = {}
        for model_id, label, workload, weight in self.session.execute(query):
            # Two networks with one name stay separate.
            first_id = names.setdefault(label, model_id)
            weights[label if first_id == model_id else f"{label} ({model_id[:8]})"][workload] = weight
        return weights


@dataclass(frozen=True, slots=True)
class NewSketch:
    """A sketch, with the design space and the TVM version that generated it."""

    sketch: Sketch
    space: str  # name and version of the design space
    tvm_version: str


class Sketches(Repository):
    """Sketches by the hash of their trace."""

    def ensure_many(self, sketches: Collection[NewSketch], *, imported: bool = False) -> dict[str, int]:
        """Insert new sketches; return all ids by key. One generated here replaces an imported
        one, and one whose place in the design space was another in older code.

        Rows that stay as they are are only read, because an upsert would lock them until
        the transaction ends, and other rounds have the same sketches.
        """
        keys = [new.sketch.key for new in sketches]
        columns = SketchRow.key, SketchRow.id, SketchRow.imported
        query = select(*columns, *(getattr(SketchRow, name) for name in _PLACE))
        rows = self.session.execute(query.where(self.is_among(SketchRow.key, keys))).all()
        stored = {key: place for key, _, *place in rows}
        values = [
            {
                "key": new.sketch.key,
                "trace": pack_text(new.sketch.trace),
                "choices": pack_choices(new.sketch.choices),
                "ordinal": new.sketch.ordinal,
                "space": new.space,
                "tvm_version": new.tvm_version,
                "imported": imported,
            }
            for new in sorted(sketches, key=lambda new: new.sketch.key)
            if (place := stored.get(new.sketch.key)) is None
            or (not imported and place != [False, new.sketch.ordinal, new.space, new.tvm_version])
        ]
        if not values:
            return {key: sketch_id for key, sketch_id, *_ in rows}
        insert = self.insert(SketchRow)
        new = {name: insert.excluded[name] for name in REPLACED_OF_SKETCH}
        keep_old = insert.on_conflict_do_nothing(index_elements=["key"])
        changes = (getattr(SketchRow, name) != insert.excluded[name] for name in _PLACE)
        is_older = or_(SketchRow.imported.is_(True), *changes)
        replace_older = insert.on_conflict_do_update(index_elements=["key"], set_=new, where=is_older)
        self.execute_for_rows(keep_old if imported else replace_older, values)
        ids = select(SketchRow.key, SketchRow.id).where(self.is_among(SketchRow.key, keys))
        return dict(self.session.execute(ids).all())

    def by_key(self, keys: Collection[str]) -> dict[str, Sketch]:
        """Return sketches by key, in the order of ids, without unknown keys."""
        query = select(SketchRow).where(self.is_among(SketchRow.key, keys)).order_by(SketchRow.id)
        return {
            row.key: Sketch(row.key, trace_of(row), unpack_choices(row.choices), row.ordinal)
            for row in self.session.scalars(query)
        }

    def rows(self, sketch_ids: Collection[int]) -> Sequence[SketchRow]:
        query = select(SketchRow).where(self.is_among(SketchRow.id, sketch_ids)).order_by(SketchRow.id)
        return self.session.scalars(query).all()


def trace_of(sketch: SketchRow) -> str:
    return unpack_text(sketch.trace)
