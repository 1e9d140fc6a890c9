"""Devices: who measures, and who was seen lately."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

from sqlalchemy import select, update

from db.clock import now
from db.repositories.base import Repository, until
from db.tables import Device
from mallorn.core.values.fleet import DeviceInfo


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """A device as it described itself."""

    name: str
    target_id: int
    host_id: str
    host_class: str
    threads: int
    tvm_version: str
    info: DeviceInfo = field(default_factory=DeviceInfo)


class Devices(Repository):
    """Measuring endpoints by name."""

    def seen(self, device: SeenDevice) -> int:
        """It answers now: write or refresh its row and return the id."""
        fresh = asdict(device) | {"last_seen": now()}
        insert = self.insert(Device).values(**fresh)
        upsert = insert.on_conflict_do_update(index_elements=["name"], set_=fresh)
        return self.session.execute(upsert.returning(Device.id)).scalar_one()

    def missed(self, present: Collection[str], silent_sec: float) -> None:
        """Devices that their tracker no longer knows have stopped; `silent_sec` is how long ago it did."""
        gone = Device.name.not_in(present), Device.last_seen < until(-silent_sec)
        for device in self.session.scalars(select(Device).where(*gone)).all():
            if not device.info.stopped:
                stopped = device.info.model_copy(update={"stopped": True, "busy": False})
                self.changed(update(Device).where(Device.id == device.id).values(info=stopped))

    def list(self, fresh_sec: float | None = None, target_id: int | None = None) -> Sequence[Device]:
        """By name; `fresh_sec` leaves out those that were silent for longer."""
        query = select(Device).order_by(Device.name)
        if fresh_sec is not None:
            query = query.where(Device.last_seen > now() - fresh_sec)
        if target_id is not None:
            query = query.where(Device.target_id == target_id)
        return self.session.scalars(query).all()
