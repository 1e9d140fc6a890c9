"""Devices: who measures, and who was seen lately."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Final

from sqlalchemy import ColumnElement, and_, case, false, func, select, type_coerce, update
from sqlalchemy.orm import defer

from db.database_clock import now
from db.repositories.base import Repository, until
from db.tables import Context, Device
from db.tables.base import JsonType
from mallorn.core.values.fleet import DeviceInfo, DeviceMachine
from mallorn.core.values.machine import Machine


@dataclass(frozen=True, slots=True)
class MachineKey:
    """What devices share whose machines are alike, as their measuring contexts have it."""

    target_id: int
    host_class: str
    tvm_version: str
    threads: int


def like_of(row: "Device | Context | SeenDevice") -> MachineKey:
    """What devices share with this one, or with those that measured in this context."""
    return MachineKey(row.target_id, row.host_class, row.tvm_version, row.threads)


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


LATEST: Final = 32
_LIKE: Final = tuple(each.name for each in fields(MachineKey))
_SEEN: Final = tuple(each.name for each in fields(SeenDevice))


class Devices(Repository):
    def seen(self, device: SeenDevice) -> int:
        """It answers now: write or refresh its row and return the id."""
        self.seen_all([device])
        return self.session.scalars(select(Device.id).where(Device.name == device.name)).one()

    def seen_all(self, devices: Iterable[SeenDevice], within_sec: float = 0.0) -> None:
        """They answer now: write or refresh their rows, but those that were within `within_sec`."""
        # Of one name one row, and in one order for all who write several: so that two never deadlock.
        named = {device.name: device for device in sorted(devices, key=lambda device: device.name)}
        fresh = (Device.last_seen > until(-within_sec)).label("fresh")
        query = select(Device, fresh).options(defer(Device.machine)).where(Device.name.in_(named))
        rows = {row.name: (row, is_fresh) for row, is_fresh in self.session.execute(query)}
        so = {
            name
            for name, (row, is_fresh) in rows.items()
            if is_fresh and all(getattr(row, each) == getattr(named[name], each) for each in _SEEN)
        }
        alike = {name for name, (row, _) in rows.items() if like_of(row) == like_of(named[name])}
        stale = [device for name, device in named.items() if name not in so]
        if not stale:
            return
        new = {like_of(device) for device in stale if device.name not in alike}
        machines = {like: self.machine_of(like) for like in new}
        values = [
            asdict(each) | {"machine": machines.get(like_of(each)), "last_seen": now()} for each in stale
        ]
        insert = self.insert(Device).values(values)
        same = and_(*(getattr(Device, name) == insert.excluded[name] for name in _LIKE))
        kept = case((same, Device.machine), else_=insert.excluded.machine)
        told = {name: insert.excluded[name] for name in _SEEN} | {"last_seen": now(), "machine": kept}
        self.session.execute(insert.on_conflict_do_update(index_elements=["name"], set_=told))

    def unmeasured(self, names: Collection[str]) -> set[str]:
        """Those of whose machines nobody has tried to find out anything."""
        if not names:
            return set()
        rows = self.session.execute(select(Device.name, Device.machine).where(Device.name.in_(names)))
        return {name for name, machine in rows if machine is None}

    def get(self, name: str) -> Device | None:
        """The device of this name, if one was ever seen."""
        return self.session.scalars(select(Device).where(Device.name == name)).one_or_none()

    def machine_of(self, like: MachineKey) -> DeviceMachine | None:
        """What is known of these devices' machine; None where nobody has tried to measure it."""
        # Pods with ever new names leave thousands, and all that came later were told what was known.
        latest = select(Device.machine).where(alike(like)).order_by(Device.last_seen.desc()).limit(LATEST)
        found = self.session.scalars(latest)
        return max(
            (each for each in found if each is not None), key=lambda each: each.at or 0.0, default=None
        )

    def machine_seen(self, target_id: int) -> DeviceMachine | None:
        """That of any device of this target, of whatever class; the one that was measured last."""
        found = self.session.scalars(select(Device.machine).where(Device.target_id == target_id))
        measured = [each for each in found if each is not None and each.machine is not None]
        return max(measured, key=lambda each: each.at or 0.0, default=None)

    def fresh_machine_of(self, like: MachineKey, again_sec: float, builder: str) -> DeviceMachine | None:
        """Return what is known of these devices' machine; None where it is to be measured (again).

        It is where other code measured it. Where it could not be measured, or not undisturbed, it is once
        that is longer ago.
        """
        known = self.machine_of(like)
        if known is None:
            return None
        is_good = known.machine is not None and not known.machine.disturbed and known.builder == builder
        was_tried = known.builder == builder or (known.machine is not None and bool(known.why))
        return known if is_good or (was_tried and self._age_sec(known) <= again_sec) else None

    def machine_before(self, like: MachineKey, ago_sec: float, builder: str) -> Machine | None:
        """Return what this builder's probes measured, if that is so long ago that it may be doubted."""
        known = self.machine_of(like)
        old = known is not None and known.builder == builder and self._age_sec(known) > ago_sec
        return known.machine if known is not None and old else None

    def found_out(self, like: MachineKey, machine: Machine | None, why: str, builder: str) -> DeviceMachine:
        """Store what was found out about all devices like this, by probes of this builder."""
        at = self.session.execute(select(now())).scalar_one()
        found = DeviceMachine(machine=machine, why=why, at=at, builder=builder)
        self.changed(update(Device).where(alike(like)).values(machine=found))
        return found

    def _age_sec(self, known: DeviceMachine) -> float:
        return self.session.execute(select(now())).scalar_one() - (known.at or 0.0)

    def missed(self, present: Collection[str], silent_sec: float) -> None:
        """Devices that their tracker no longer knows have stopped; `silent_sec` is how long ago it did."""
        gone = Device.name.not_in(present), Device.last_seen < until(-silent_sec)
        said_so = func.coalesce(type_coerce(Device.info, JsonType)["stopped"].as_boolean(), false())
        rows = self.session.execute(
            select(Device.id, Device.info).where(*gone, ~said_so).order_by(Device.name)
        )
        for device_id, info in rows.all():
            stopped = info.model_copy(update={"stopped": True, "busy": False})
            self.changed(update(Device).where(Device.id == device_id).values(info=stopped))

    def list(self, fresh_sec: float | None = None, target_id: int | None = None) -> Sequence[Device]:
        """By name; `fresh_sec` leaves out those that were silent for longer."""
        query = select(Device).order_by(Device.name)
        if fresh_sec is not None:
            query = query.where(Device.last_seen > now() - fresh_sec)
        if target_id is not None:
            query = query.where(Device.target_id == target_id)
        return self.session.scalars(query).all()


def alike(like: MachineKey) -> ColumnElement[bool]:
    """Whether a row is of such a device."""
    return and_(*(getattr(Device, name) == value for name, value in asdict(like).items()))
