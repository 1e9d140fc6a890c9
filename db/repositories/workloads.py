"""Workloads: the tensor programs of the dataset."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import select

from db.codec import pack_text, unpack_text
from db.repositories.base import Repository
from db.tables import Workload


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

    def ensure_many(self, workloads: Collection[NewWorkload]) -> dict[str, int]:
        """Ids by key, new ones written. In key order, so that two importers never wait for each other."""
        values = [
            asdict(new) | {"tir": pack_text(new.tir)} for new in sorted(workloads, key=lambda new: new.key)
        ]
        if values:
            once = self.insert(Workload).values(values)
            self.session.execute(once.on_conflict_do_nothing(index_elements=["key"]))
        return self.ids([new.key for new in workloads])

    def ids(self, keys: Collection[str]) -> dict[str, int]:
        """Ids by key of those that the dataset knows."""
        query = select(Workload.key, Workload.id).where(Workload.key.in_(keys))
        return dict(self.session.execute(query).all())

    def get(self, workload_id: int) -> Workload:
        """A workload whose id came from the database."""
        return self.session.get_one(Workload, workload_id)

    def get_many(self, workload_ids: Collection[int]) -> Sequence[Workload]:
        """In the order of their ids."""
        query = select(Workload).where(Workload.id.in_(workload_ids)).order_by(Workload.id)
        return self.session.scalars(query).all()

    def of_structure(self, structure: str) -> Sequence[Workload]:
        """Those with the same loops, whatever their sizes, oldest first."""
        query = select(Workload).where(Workload.structure == structure).order_by(Workload.id)
        return self.session.scalars(query).all()

    def find(self, key: str) -> Workload | None:
        """The workload of this key, if the dataset knows it."""
        return self.session.scalars(select(Workload).where(Workload.key == key)).one_or_none()


def tir_of(workload: Workload) -> str:
    """The program, as tvm.ir.load_json reads it."""
    return unpack_text(workload.tir)
