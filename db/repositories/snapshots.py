"""Named, frozen sets of measurements, and the name of the dataset itself."""

from collections.abc import Mapping, Sequence
from uuid import uuid4

from sqlalchemy import select

from db.repositories.base import Repository
from db.tables import Snapshot, SourceDataset
from mallorn.core.errors import Conflict, NotFound


class Snapshots(Repository):
    """Snapshots by name. One is never changed."""

    def add(self, name: str, upto: int, selected: Mapping[str, object], rows: int, digest: str) -> Snapshot:
        """Store a snapshot. Raises Conflict when the name is taken, by the very same rows or by others."""
        new = self.insert(Snapshot).values(name=name, upto=upto, filter=selected, rows=rows, digest=digest)
        if not self.changed(new.on_conflict_do_nothing(index_elements=["name"])):
            raise name_taken(name)
        return self.get(name)

    def find(self, name: str) -> Snapshot | None:
        return self.session.scalars(select(Snapshot).where(Snapshot.name == name)).one_or_none()

    def get(self, name: str) -> Snapshot:
        """Raises NotFound."""
        found = self.find(name)
        if found is None:
            raise NotFound(f"there is no snapshot {name}", hint="mallorn dataset snapshot   (lists them)")
        return found

    def list(self) -> Sequence[Snapshot]:
        """Newest first."""
        return self.session.scalars(select(Snapshot).order_by(Snapshot.id.desc())).all()


class Sources(Repository):
    """Datasets by the name they gave themselves."""

    def own(self) -> SourceDataset:
        """This dataset; it names itself when it is first asked."""
        self.session.execute(
            self.insert(SourceDataset).values(key=uuid4().hex, own=True).on_conflict_do_nothing()
        )
        return self.session.scalars(select(SourceDataset).where(SourceDataset.own)).one()

    def ensure(self, key: str) -> int:
        """The id of a dataset, written if it is new."""
        once = self.insert(SourceDataset).values(key=key, own=False)
        self.session.execute(once.on_conflict_do_nothing(index_elements=["key"]))
        return self.session.scalars(select(SourceDataset.id).where(SourceDataset.key == key)).one()


def name_taken(name: str) -> Conflict:
    """What a snapshot is refused with whose name there is already."""
    return Conflict(f"there is a snapshot {name} already", hint=f"mallorn dataset snapshot {name}-2")
