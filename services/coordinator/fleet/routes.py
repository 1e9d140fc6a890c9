"""Routes for devices, workers and their recent activity.

Also computes the states of devices and workers, and what `local` or the name of a kind of
accelerator means as a target.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from mallorn.core.api_keys import Scope
from mallorn.core.errors import Conflict, InvalidTarget, NoDevice
from mallorn.core.host_id import host_id
from mallorn.core.target_kind import TargetKind
from mallorn.core.targets import LOCAL, Target, kind_of_word, parse_target
from mallorn.core.values.fleet import (
    DeviceState,
    DeviceStatus,
    FleetActivity,
    WithdrawIn,
    Withdrawn,
    WorkerState,
    WorkerStatus,
)
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.withdraw_measurements import Withdrawals
from mallorn.db.repositories.workers import Activity, StageRuns, Workers
from mallorn.db.session import read_clock
from mallorn.db.tables import Device, Worker
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.authenticator import required_scopes_extra
from mallorn.services.coordinator.web.caller_dependencies import OwnerDep
from mallorn.services.coordinator.web.response_types import ListOut

router = APIRouter(tags=["fleet"])
ONLINE_SEC: Final = 60.0
SILENT_SEC: Final = 30.0
# A worker's id names one process, so workers not seen for a day will not return.
KEEP_SEC: Final = 24 * 3600.0
MOST_ROWS: Final = 5000  # rounds, and stages, of an answer
DAY_MINUTES: Final = 24 * 60
SEES_FLEET: Final = required_scopes_extra(Scope.READ, Scope.DEVICE)


def is_online(device: Device, seen_sec: float) -> bool:
    """Return whether a device was seen recently and has not stopped."""
    return seen_sec < ONLINE_SEC and not device.info.stopped


def state_of_device(device: Device, seen_sec: float) -> DeviceState:
    """Return the state of a device; `seen_sec` is the time since it was last seen."""
    if device.info.stopped:
        return DeviceState.STOPPED
    if seen_sec >= ONLINE_SEC:
        return DeviceState.SILENT
    return DeviceState.MEASURING if device.info.busy else DeviceState.IDLE


def state_of_worker(worker: Worker, seen_sec: float) -> WorkerState:
    """Return the state of a worker; `seen_sec` is the time since it was last seen."""
    if worker.info.stopped:
        return WorkerState.STOPPED
    if seen_sec > SILENT_SEC:
        return WorkerState.SILENT
    return WorkerState.BUSY if worker.busy_with and not worker.info.missing_resource else WorkerState.IDLE


def local_target(session: Session) -> Target:
    """Return the target of a device that is online on the coordinator's own host.

    The host's detected target is preferred to others it can execute, a CPU to accelerators.
    Raises Conflict if no device of this host is known, NoDevice if none of them is online.
    """
    local = [device for device in Devices(session).list() if device.host_id == host_id()]
    if not local:
        raise Conflict("`local` needs a device on this host; none is known", hint="mallorn device")
    now_sec = read_clock(session)
    online = [device for device in local if is_online(device, now_sec - device.last_seen)]
    if not online:
        last = max(local, key=lambda device: device.last_seen)
        raise NoDevice(
            f"`local` is the device {last.name}, which was last seen {now_sec - last.last_seen:.0f} s ago",
            hint="mallorn device   (workers report devices: mallorn workers)",
        )
    pairs = [(device, Target(Targets(session).get(device.target_id).text)) for device in online]
    return max(pairs, key=lambda pair: (pair[0].info.is_local, pair[1].runs_on_cores, pair[0].last_seen))[1]


def accelerator_target(session: Session, kind: TargetKind) -> Target:
    """Return the target that all online devices with this kind of accelerator have in common.

    Raises NoDevice if no online device has one, InvalidTarget if their targets differ.
    """
    now_sec = read_clock(session)
    online = [device for device in Devices(session).list() if is_online(device, now_sec - device.last_seen)]
    targets = {Target(Targets(session).get(device.target_id).text) for device in online}
    found = sorted(target.text for target in targets if target.kind in kind.tvm_kinds)
    if not found:
        message = f"no device for {kind.name} is online"
        raise NoDevice(message, hint=f"mallorn device --target {kind.name}   (where it is)")
    if len(found) > 1:
        raise InvalidTarget(f"`{kind.name}` could be {', '.join(found)}", hint=f"--target '{found[0]}'")
    return Target(found[0])


def named_target(session: Session, target: str | Mapping[str, object]) -> Target:
    """Return what `local`, a kind of accelerator, or a text of `parse_target` means."""
    if target == LOCAL:
        return local_target(session)
    kind = kind_of_word(target) if isinstance(target, str) else None
    return parse_target(target) if kind is None else accelerator_target(session, kind)


@router.get("/devices", openapi_extra=SEES_FLEET)
def list_devices(
    parts: PartsDep,
    target: Annotated[
        str | None, Query(description="Only devices of this target; also `local` or `cuda`.")
    ] = None,
) -> ListOut[DeviceStatus]:
    """List the known devices with their state and when each was last seen."""
    with parts.database.session() as session:
        wanted = named_target(session, target).text if target else None
        now_sec, devices = read_clock(session), Devices(session).list()
        targets = Targets(session).texts(device.target_id for device in devices)
        items = [
            DeviceStatus.from_row(
                device,
                target=targets[device.target_id],
                busy=device.info.busy,
                state=state_of_device(device, seen_sec := max(0.0, now_sec - device.last_seen)),
                silent_sec=round(seen_sec, 3),
                online=is_online(device, seen_sec),
            )
            for device in devices
            if wanted in (None, targets[device.target_id])
        ]
    return ListOut(items=sorted(items, key=lambda device: device.state is DeviceState.STOPPED))


@router.post("/devices/{name}/withdraw", openapi_extra=required_scopes_extra(Scope.ADMIN))
def withdraw_device(parts: PartsDep, name: str, request: WithdrawIn) -> Withdrawn:
    """Withdraw a device's measurements, and the schedules and cost models based on them."""
    if request.dry_run:
        with parts.patient.session() as session:
            return Withdrawals(session).count(name, request.since)
    with parts.patient.transaction() as session:
        return Withdrawals(session).withdraw(name, request.since)


@router.get("/workers", openapi_extra=SEES_FLEET)
def list_workers(parts: PartsDep) -> ListOut[WorkerStatus]:
    """List the workers seen in the last 24 hours."""
    with parts.database.session() as session:
        now_sec = read_clock(session)
        items = [
            WorkerStatus.from_row(
                worker,
                state=state_of_worker(worker, seen_sec := max(0.0, now_sec - worker.last_seen)),
                uptime_sec=round(max(0.0, worker.last_seen - worker.started_at), 3),
                silent_sec=round(seen_sec, 3),
            )
            for worker in Workers(session).list(KEEP_SEC)
        ]
    return ListOut(items=sorted(items, key=lambda worker: worker.state is WorkerState.STOPPED))


@router.get("/fleet/activity", openapi_extra=SEES_FLEET)
def get_fleet_activity(
    parts: PartsDep,
    owner: OwnerDep,
    minutes: Annotated[
        float, Query(gt=0, le=DAY_MINUTES, allow_inf_nan=False, description="Minutes to look back.")
    ] = 60,
) -> FleetActivity:
    """Show each worker's recent rounds and stages; count waiting rounds and active jobs."""
    with parts.database.session() as session:
        now_sec = read_clock(session)
        rounds = Activity(session).rounds(owner, minutes * 60, MOST_ROWS)
        stages = StageRuns(session).recent(owner, minutes * 60, MOST_ROWS)
        jobs = Activity(session).count_waiting()
    return FleetActivity(
        current_time=now_sec,
        since=now_sec - minutes * 60,
        rounds=rounds,
        stages=stages,
        is_complete=max(len({row.round_id for row in rounds}), len(stages)) < MOST_ROWS,
        queued_rounds=jobs.pop("rounds"),
        jobs=jobs,
    )
