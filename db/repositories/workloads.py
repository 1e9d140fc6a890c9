"""Workloads: the tensor programs of the dataset."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Executable, and_, exists, func, or_, select, update

from db.measurement_codec import pack_text, unpack_text
from db.repositories.base import Repository
from db.repositories.snapshot_rows import SnapshotRows
from db.tables import Job, Model, Task, Workload

KEPT: Final = 2**63 - 1  # above all rows: only private jobs brought it
REPLACED: Final = ("op", "structure", "flops", "tir", "args", "features", "tvm_version")


@dataclass(frozen=True, slots=True)
class NewWorkload:
    """A workload as the importer found it; `tir` is tvm.ir.save_json of its module."""

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
    """Workloads, each stored once under its own key."""

    def ensure_many(
        self, workloads: Collection[NewWorkload], *, private: bool = False, code: str | None = None
    ) -> dict[str, int]:
        """Ids by key, new ones written. In key order, so that two importers never wait for each other.

        What was extracted here, by `code`, replaces what was imported or what other code extracted. What is
        imported (None) replaces nothing. What private jobs brought is everybody's once it comes from
        elsewhere, too.
        """
        kept = {"kept_upto": KEPT if private else 0, "code": code}
        values = [
            asdict(new) | kept | {"tir": pack_text(new.tir)}
            for new in sorted(workloads, key=lambda new: new.key)
        ]
        if values:
            self.for_each(self._upsert(code, private), values)
        if not private:
            # From now on everybody's; what is frozen goes on to leave out the rows that there are.
            alone = self.among(Workload.key, [new.key for new in workloads]), Workload.kept_upto == KEPT
            if self.session.scalar(select(exists().where(*alone))):
                upto = SnapshotRows(self.session).settled_mark()
                self.changed(update(Workload).where(*alone).values(kept_upto=upto))
        return self.ids([new.key for new in workloads])

    def _upsert(self, code: str | None, private: bool) -> Executable:
        insert = self.insert(Workload)
        if code is None:
            return insert.on_conflict_do_nothing(index_elements=["key"])
        new = insert.excluded
        other = or_(Workload.code.is_distinct_from(new.code), Workload.tvm_version != new.tvm_version)
        if private:  # a program keeps the names of its model's inputs: they do not become everybody's
            other = and_(other, Workload.kept_upto == KEPT)
        replaced = {name: new[name] for name in (*REPLACED, "code")}
        return insert.on_conflict_do_update(index_elements=["key"], set_=replaced, where=other)

    def ids(self, keys: Collection[str]) -> dict[str, int]:
        """Ids by key of those that the dataset knows."""
        query = select(Workload.key, Workload.id).where(self.among(Workload.key, keys))
        return dict(self.session.execute(query).all())

    def get(self, workload_id: int) -> Workload:
        """A workload whose id came from the database."""
        return self.session.get_one(Workload, workload_id)

    def get_many(self, workload_ids: Collection[int]) -> Sequence[Workload]:
        """In the order of their ids."""
        query = select(Workload).where(self.among(Workload.id, workload_ids)).order_by(Workload.id)
        return self.session.scalars(query).all()

    def of_structure(self, structure: str, owner: str) -> Sequence[Workload]:
        """Those with the same loops, whatever their sizes, that an owner may know, oldest first."""
        own = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(Job.owner == owner)
        query = select(Workload).where(
            Workload.structure == structure, or_(Workload.kept_upto != KEPT, Workload.id.in_(own))
        )
        return self.session.scalars(query.order_by(Workload.id)).all()


def tir_of(workload: Workload) -> str:
    """The program, as tvm.ir.load_json reads it."""
    return unpack_text(workload.tir)


class Networks(Repository):
    """Reads the workloads that the importer found in models of all owners, but for those of private jobs."""

    def weights(self) -> Mapping[str, Mapping[str, int]]:
        """For each network, by its uploaded name, the number of calls of each workload."""
        name = func.coalesce(func.min(Model.name), Job.model_id)
        query = (
            select(Job.model_id, name, Workload.key, func.max(Task.weight))
            .join(Task, Task.job_id == Job.id)
            .join(Workload, Workload.id == Task.workload_id)
            .join(Model, Model.id == Job.model_id, isouter=True)
            .where(~Job.private, Task.weight > 0)
            .group_by(Job.model_id, Workload.key)
            .order_by(Job.model_id, Workload.key)
        )
        found = defaultdict[str, dict[str, int]](dict)
        names: dict[str, str] = {}
        for model_id, called, workload, weight in self.session.execute(query):
            # Two networks with one name stay separate.
            known = names.setdefault(called, model_id)
            found[called if known == model_id else f"{called} ({model_id[:8]})"][workload] = weight
        return found
