"""Measuring devices: their descriptions, their machines, and when they were last seen."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from typing import Final

from sqlalchemy import ColumnElement, and_, case, false, func, select, tuple_, type_coerce, update

from mallorn.core.values.fleet import DeviceInfo, DeviceMachine
from mallorn.core.values.machine import Machine
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository, seconds_from_now
from mallorn.db.repositories.workers import FRESH_SEC
from mallorn.db.tables import Context, Device
from mallorn.db.tables.base import JsonType


@dataclass(frozen=True, slots=True)
class MachineKey:
    """Fields that identify a kind of machine, in devices and in measuring contexts."""

    target_id: int
    host_class: str
    tvm_version: str
    threads: int


def machine_key_of(row: "Device | Context | SeenDevice") -> MachineKey:
    return MachineKey(row.target_id, row.host_class, row.tvm_version, row.threads)


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """A device as it described itself when it answered."""

    name: str
    target_id: int
    host_id: str
    host_class: str
    threads: int
    tvm_version: str
    info: DeviceInfo = field(default_factory=DeviceInfo)


LATEST: Final = 32
_LIKE: Final = tuple(column.name for column in fields(MachineKey))
_SEEN: Final = tuple(column.name for column in fields(SeenDevice))


class Devices(Repository):
    def record_seen(self, device: SeenDevice) -> int:
        """Record that a device answers now: insert or update its row; return its id."""
        return self.record_all_seen([device])[device.name]

    def record_all_seen(
        self, devices: Iterable[SeenDevice], within_sec: float = 0.0, busy_within_sec: float = 0.0
    ) -> dict[str, int]:
        """Record that devices answer now; return their ids. Costs one query, at most one write.

        Skip unchanged rows newer than `within_sec`, and rows newer than `busy_within_sec`
        of which only `busy` has changed: each round of a device changes it twice.
        """
        # One row per name, in one order for all writers, to prevent deadlocks.
        by_name = {device.name: device for device in sorted(devices, key=lambda device: device.name)}
        columns = [getattr(Device, name) for name in _SEEN]
        query = select(Device.id, now() - Device.last_seen, *columns)
        rows = self.session.execute(query.where(self.is_among(Device.name, by_name))).all()
        stored = {row[0]: (age_sec, SeenDevice(*row)) for _, age_sec, *row in rows}

        def is_stale(device: SeenDevice) -> bool:
            if device.name not in stored:
                return True
            age_sec, row = stored[device.name]
            if row == device:
                return bool(age_sec >= within_sec)
            info = row.info.model_copy(update={"busy": device.info.busy})
            return replace(row, info=info) != device or bool(age_sec >= busy_within_sec)

        stale = [device for device in by_name.values() if is_stale(device)]
        same_machine = {
            name for name, (_, row) in stored.items() if machine_key_of(row) == machine_key_of(by_name[name])
        }
        ids = {name: device_id for device_id, _, name, *_ in rows}
        if not stale:
            return ids
        new_keys = {machine_key_of(device) for device in stale if device.name not in same_machine}
        machines = {key: self.machine_of(key) for key in new_keys}
        values = [
            asdict(device)
            | {"machine": machines.get(machine_key_of(device)), "last_seen": now(), "changed_at": now()}
            for device in stale
        ]
        insert = self.insert(Device).values(values)
        is_same = and_(*(getattr(Device, name) == insert.excluded[name] for name in _LIKE))
        machine = case((is_same, Device.machine), else_=insert.excluded.machine)
        was_live = Device.last_seen > seconds_from_now(-FRESH_SEC), ~_is_stopped()
        changed_at = case((and_(is_same, *was_live), Device.changed_at), else_=now())
        updates: dict[str, object] = {name: insert.excluded[name] for name in _SEEN}
        updates |= {"last_seen": now(), "machine": machine, "changed_at": changed_at}
        upsert = insert.on_conflict_do_update(index_elements=["name"], set_=updates)
        return ids | dict(self.session.execute(upsert.returning(Device.name, Device.id)).all())

    def find_unprobed(self, names: Collection[str]) -> set[str]:
        """Return which of these devices are on machines that no worker tried to measure."""
        if not names:
            return set()
        rows = self.session.execute(select(Device.name, Device.machine).where(Device.name.in_(names)))
        return {name for name, machine in rows if machine is None}

    def get(self, name: str) -> Device | None:
        return self.session.scalars(select(Device).where(Device.name == name)).one_or_none()

    def machine_of(self, key: MachineKey) -> DeviceMachine | None:
        """Return the newest benchmark of machines with this key; None if none was tried."""
        # Pods leave thousands of rows, and each new row gets the newest known machine.
        latest = select(Device.machine).where(has_machine_key(key)).order_by(Device.last_seen.desc())
        rows = self.session.scalars(latest.limit(LATEST))
        machines = [machine for machine in rows if machine is not None]
        return max(machines, key=lambda machine: machine.probed_at or 0.0, default=None)

    def find_newest_machine_of_target(self, target_id: int) -> DeviceMachine | None:
        """Return the machine measured last among a target's devices, of any host class."""
        machines = self.session.scalars(select(Device.machine).where(Device.target_id == target_id))
        measured_machines = (machine for machine in machines if machine is not None and machine.machine)
        return max(measured_machines, key=lambda machine: machine.probed_at or 0.0, default=None)

    def fresh_machine_of(self, key: MachineKey, again_sec: float, builder: str) -> DeviceMachine | None:
        """Return `machine_of(key)`, or None if the machine must be measured (again).

        It must be measured again if other code (`builder`) did it, or if a measurement
        that failed or was disturbed is more than `again_sec` old.
        """
        result = self.machine_of(key)
        if result is None:
            return None
        is_good = result.machine is not None and not result.machine.disturbed and result.builder == builder
        was_tried = result.builder == builder or (result.machine is not None and bool(result.reason))
        return result if is_good or (was_tried and self._age_sec(result) <= again_sec) else None

    def find_outdated_machine(self, key: MachineKey, ago_sec: float, builder: str) -> Machine | None:
        """Return the machine if this builder measured it over `ago_sec` ago, or None."""
        result = self.machine_of(key)
        is_old = result is not None and result.builder == builder and self._age_sec(result) > ago_sec
        return result.machine if result is not None and is_old else None

    def store_machine(
        self, key: MachineKey, machine: Machine | None, reason: str, builder: str
    ) -> DeviceMachine:
        """Store, for all devices with this key, what a probe measured or why it failed."""
        time = self.session.execute(select(now())).scalar_one()
        result = DeviceMachine(machine=machine, reason=reason, probed_at=time, builder=builder)
        self.execute_and_count(update(Device).where(has_machine_key(key)).values(machine=result))
        return result

    def _age_sec(self, machine: DeviceMachine) -> float:
        return self.session.execute(select(now())).scalar_one() - (machine.probed_at or 0.0)

    def mark_stopped(self, present: Collection[str], silent_sec: float) -> None:
        """Mark unlisted devices (not in `present`), unseen for `silent_sec`, as stopped."""
        is_gone = ~self.is_among(Device.name, present), Device.last_seen < seconds_from_now(-silent_sec)
        query = select(Device.id, Device.info).where(*is_gone, ~_is_stopped()).order_by(Device.name)
        rows = self.session.execute(query)
        for device_id, info in rows.all():
            new_info = info.model_copy(update={"stopped": True, "busy": False})
            values = {"info": new_info, "changed_at": now()}
            self.execute_and_count(update(Device).where(Device.id == device_id).values(values))

    def list(self, fresh_sec: float | None = None, target_id: int | None = None) -> Sequence[Device]:
        """Return devices by name, only those seen within `fresh_sec` if given."""
        query = select(Device).order_by(Device.name)
        if fresh_sec is not None:
            query = query.where(Device.last_seen > now() - fresh_sec)
        if target_id is not None:
            query = query.where(Device.target_id == target_id)
        return self.session.scalars(query).all()


def _is_stopped() -> ColumnElement[bool]:
    return func.coalesce(type_coerce(Device.info, JsonType)["stopped"].as_boolean(), false())


def has_machine_key(key: MachineKey) -> ColumnElement[bool]:
    return and_(*(getattr(Device, name) == value for name, value in asdict(key).items()))


def is_context_of_any(keys: Iterable[MachineKey]) -> ColumnElement[bool]:
    """Return the condition that a measuring context has one of these machine keys."""
    columns = tuple_(*(getattr(Context, name) for name in _LIKE))
    return columns.in_([astuple(key) for key in keys])
