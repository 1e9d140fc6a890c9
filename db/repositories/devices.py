"""Devices: who measures, and who was seen lately."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field

from sqlalchemy import ColumnElement, and_, case, select, update

from db.clock import now
from db.repositories.base import Repository, until
from db.tables import Context, Device
from mallorn.core.values.fleet import DeviceInfo, DeviceMachine
from mallorn.core.values.machine import Machine


@dataclass(frozen=True, slots=True)
class Like:
    """What devices share whose machines are alike, as their measuring contexts have it."""

    target_id: int
    host_class: str
    tvm_version: str
    threads: int


def like_of(row: Device | Context) -> Like:
    """What devices share with this one, or with those that measured in this context."""
    return Like(row.target_id, row.host_class, row.tvm_version, row.threads)


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
        like = Like(device.target_id, device.host_class, device.tvm_version, device.threads)
        known = self.machine_of(like)
        fresh = asdict(device) | {"last_seen": now()}
        insert = self.insert(Device).values(**fresh, machine=known)
        kept = case((alike(like), Device.machine), else_=insert.excluded.machine)
        upsert = insert.on_conflict_do_update(index_elements=["name"], set_=fresh | {"machine": kept})
        return self.session.execute(upsert.returning(Device.id)).scalar_one()

    def get(self, name: str) -> Device | None:
        """The device of this name, if one was ever seen."""
        return self.session.scalars(select(Device).where(Device.name == name)).one_or_none()

    def machine_of(self, like: Like) -> DeviceMachine | None:
        """What is known of these devices' machine; None where nobody has tried to measure it."""
        found = self.session.scalars(select(Device.machine).where(alike(like)))
        return max(
            (each for each in found if each is not None), key=lambda each: each.at or 0.0, default=None
        )

    def machine_seen(self, target_id: int) -> Machine | None:
        """That of any device of this target, of whatever class; the one that was measured last."""
        found = self.session.scalars(select(Device.machine).where(Device.target_id == target_id))
        measured = [each for each in found if each is not None and each.machine is not None]
        newest = max(measured, key=lambda each: each.at or 0.0, default=None)
        return None if newest is None else newest.machine

    def fresh_machine_of(self, like: Like, again_sec: float) -> DeviceMachine | None:
        """The same; None also where it could not be measured undisturbed, and that is longer ago."""
        known = self.machine_of(like)
        if known is None or (known.machine is not None and not known.machine.disturbed):
            return known
        return None if self._age_sec(known) > again_sec else known

    def machine_before(self, like: Like, ago_sec: float) -> Machine | None:
        """What was measured, if that is so long ago that it may be doubted."""
        known = self.machine_of(like)
        return known.machine if known is not None and self._age_sec(known) > ago_sec else None

    def found_out(self, like: Like, machine: Machine | None, why: str) -> DeviceMachine:
        """Store what was found out about all devices like this."""
        at = self.session.execute(select(now())).scalar_one()
        found = DeviceMachine(machine=machine, why=why, at=at)
        self.changed(update(Device).where(alike(like)).values(machine=found))
        return found

    def _age_sec(self, known: DeviceMachine) -> float:
        return self.session.execute(select(now())).scalar_one() - (known.at or 0.0)

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


def alike(like: Like) -> ColumnElement[bool]:
    """Whether a row is of such a device."""
    return and_(*(getattr(Device, name) == value for name, value in asdict(like).items()))
