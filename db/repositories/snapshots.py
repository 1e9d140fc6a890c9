"""Named, frozen sets of measurements, and the keys of datasets."""

from collections.abc import Mapping, Sequence
from uuid import uuid4

from sqlalchemy import select

from db.repositories.base import Repository
from db.tables import Snapshot, SourceDataset
from mallorn.core.errors import Conflict, NotFound


class Snapshots(Repository):
    """Snapshots by name. A snapshot never changes."""

    def add(self, name: str, upto: int, selected: Mapping[str, object], rows: int, digest: str) -> Snapshot:
        """Store a snapshot. Raises Conflict if the name is taken, even by the same rows."""
        insert = self.insert(Snapshot).values(name=name, upto=upto, filter=selected, rows=rows, digest=digest)
        if not self.changed(insert.on_conflict_do_nothing(index_elements=["name"])):
            raise name_taken(name)
        return self.get(name)

    def find(self, name: str) -> Snapshot | None:
        return self.session.scalars(select(Snapshot).where(Snapshot.name == name)).one_or_none()

    def get(self, name: str) -> Snapshot:
        """Return the snapshot with this name. Raises NotFound if there is none."""
        snapshot = self.find(name)
        if snapshot is None:
            raise NotFound(f"there is no snapshot {name}", hint="mallorn dataset snapshot   (lists them)")
        return snapshot

    def list(self) -> Sequence[Snapshot]:
        """Return all snapshots, newest first."""
        return self.session.scalars(select(Snapshot).order_by(Snapshot.id.desc())).all()


class Sources(Repository):
    """Datasets by the key that each created for itself."""

    def own(self) -> SourceDataset:
        """Return this dataset; the first call creates its key."""
        self.session.execute(
            self.insert(SourceDataset).values(key=uuid4().hex, own=True).on_conflict_do_nothing()
        )
        return self.session.scalars(select(SourceDataset).where(SourceDataset.own)).one()

    def ensure(self, key: str) -> int:
        """Return the id of the dataset with this key; insert it if it is new."""
        insert = self.insert(SourceDataset).values(key=key, own=False)
        self.session.execute(insert.on_conflict_do_nothing(index_elements=["key"]))
        return self.session.scalars(select(SourceDataset.id).where(SourceDataset.key == key)).one()


def name_taken(name: str) -> Conflict:
    """Return the error for a new snapshot whose name is taken."""
    return Conflict(f"there is a snapshot {name} already", hint=f"mallorn dataset snapshot {name}-2")
