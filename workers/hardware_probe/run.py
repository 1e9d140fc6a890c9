"""Measure each machine once, by a single worker; use assumed figures if that fails."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import MallornError
from mallorn.core.states import JobState, WorkKind
from mallorn.core.targets import Target
from mallorn.core.values.fleet import DeviceMachine
from mallorn.core.values.machine import Machine, peak_gflops
from mallorn.db.repositories.devices import Devices, MachineKey, machine_key_of
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_LOSSES, Leases, LeaseToken, WorkItem
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Workloads
from mallorn.db.tables import Job
from mallorn.workers.hardware_probe.measure_machine import probe_device_machine
from mallorn.workers.host.code_digest import current_code_name
from mallorn.workers.interfaces.tensor_arguments import unpack_arguments
from mallorn.workers.measure.roofline_check import REFUSED
from mallorn.workers.measure.tvm_space import assume_machine
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.match_devices_and_builder import class_of
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.subprocesses.shutdown import STOP, ShutdownRequested

AGAIN_SEC: Final = 3600.0  # time until a failed or disturbed measurement is repeated
PATIENCE_SEC: Final = 120.0  # longest wait for another worker that measures the machine
PROBES_SEC: Final = 30.0  # longest duration of an undisturbed measurement
LOOK_SEC: Final = 0.5
OF_A_HOST: Final = ("host_class", "tvm_version", "threads")
DIED: Final = f"workers died {MAX_LOSSES} times while they probed it"
BEATEN: Final = 1.05  # share of the peak that is implausible: clock rates vary by less
SURE_SEC: Final = 600.0  # newer measurements are trusted: operations may be miscounted instead
log = logging.getLogger(__name__)


def ensure_machine(
    runtime: Runtime, job_id: str, patience_sec: float = PATIENCE_SEC, measuring: bool = True
) -> None:
    """Store with the job the machine (speeds, caches) that its candidates are proposed for;
    it never changes afterwards. Without `measuring`, this is the machine measured last for
    the target, or an assumed one."""
    with runtime.database.session() as session:
        job = Jobs(session).get(job_id, None)
        target = Target(Targets(session).get(job.target_id).text)
        if job.machine is not None or target.virtual_device:
            return
        machine_key = (
            None if job.context_id is None else machine_key_of(Contexts(session).get(job.context_id))
        )
    record: DeviceMachine | None = None
    if not measuring:
        with runtime.database.session() as session:
            record = Devices(session).find_newest_machine_of_target(job.target_id)
    elif machine_key is not None:
        record = _measure_or_await_machine(runtime, machine_key, target, patience_sec)
    machine_here = None if record is None else record.machine_for_builder(current_code_name())
    machine = machine_here or assume_machine(target, runtime.compiler)
    with runtime.database.transaction() as session:
        Jobs(session).bind_machine(job_id, machine)


def load_measured_machine(runtime: Runtime, job_id: str) -> Machine | None:
    """Return the machine that today's code found by probing the job's devices, or None."""
    with runtime.database.session() as session:
        job = Jobs(session).get(job_id, None)
        if job.context_id is None:
            return None
        record = Devices(session).machine_of(machine_key_of(Contexts(session).get(job.context_id)))
    return record.machine if record is not None and record.builder == current_code_name() else None


def measure_device(runtime: Runtime, name: str) -> None:
    """Measure a new device's machine, unless it is known or another worker does so."""
    with runtime.database.session() as session:
        device = Devices(session).get(name)
        if device is None:
            return
        machine_key, target = machine_key_of(device), Target(Targets(session).get(device.target_id).text)
    if _load_current_machine(runtime, machine_key) is None:
        measure_and_store_machine(runtime, machine_key, target)


def _measure_or_await_machine(
    runtime: Runtime, machine_key: MachineKey, target: Target, patience_sec: float
) -> DeviceMachine | None:
    """Return the stored machine; measure it first, or wait until another worker has done
    so. After `patience_sec`, return what older code measured, if anything."""
    deadline_sec = time.monotonic() + patience_sec
    while (record := _load_current_machine(runtime, machine_key)) is None:
        record = measure_and_store_machine(runtime, machine_key, target)
        if record is not None:
            return record
        if time.monotonic() >= deadline_sec:
            with runtime.database.session() as session:
                return Devices(session).machine_of(machine_key)
        STOP.raise_if_requested()
        time.sleep(LOOK_SEC)
    return record


def _load_current_machine(runtime: Runtime, machine_key: MachineKey) -> DeviceMachine | None:
    with runtime.database.session() as session:
        return Devices(session).fresh_machine_of(machine_key, AGAIN_SEC, current_code_name())


def measure_and_store_machine(
    runtime: Runtime, machine_key: MachineKey, target: Target, doubted: bool = False
) -> DeviceMachine | None:
    """Measure a machine and return the stored record; None if another worker measures it
    now. An earlier result stays if this attempt fails. With `doubted`, an earlier result of
    the same code also stays unless the new one is faster or less disturbed."""
    key = machine_key
    words = f"{key.target_id}/{key.host_class}/{key.tvm_version}/{key.threads}"
    with runtime.database.transaction() as session:
        hold = Leases(session).claim(
            WorkItem(WorkKind.MACHINE, words), runtime.name, runtime.settings.lease_sec
        )
        if hold is None:
            return None
        is_given_up = Leases(session).get(hold.item).deaths >= MAX_LOSSES
        record = Devices(session).machine_of(machine_key) or DeviceMachine()
    try:
        machine, reason = (None, DIED) if is_given_up else measure_machine(runtime, hold, machine_key, target)
        measured_by = current_code_name()
        old_machine, is_ours = record.machine, record.builder == measured_by
        if old_machine is not None and machine is None:
            machine, measured_by, reason = old_machine, record.builder, "" if is_ours else reason
        elif machine is not None and doubted and is_ours and old_machine:
            is_faster = peak_gflops(machine, ["float32"]) >= peak_gflops(old_machine, ["float32"])
            is_calmer = old_machine.disturbed and not machine.disturbed
            machine = machine if is_faster or is_calmer else old_machine
        with runtime.database.transaction() as session:
            return Devices(session).store_machine(machine_key, machine, reason, measured_by)
    finally:
        with runtime.database.transaction() as session:
            Leases(session).end(hold)


def measure_machine(
    runtime: Runtime, hold: LeaseToken, machine_key: MachineKey, target: Target
) -> tuple[Machine | None, str]:
    """Return the machine, or None and the reason why it could not be measured."""
    if not target.hardware.has_probes:
        return None, f"the peak of {target.kind} devices is not measured"

    def renew() -> bool:
        with runtime.database.transaction() as session:
            return Leases(session).renew(hold, runtime.settings.lease_sec)

    try:
        with (
            runtime.working_on("measuring what a machine computes"),
            LeaseKeeper(renew, runtime.settings.lease_sec),
        ):
            endpoint, machine = probe_device_machine(runtime, target, class_of(machine_key))
    except ShutdownRequested:
        raise
    except MallornError as error:
        log.warning("the machine of %s is not measured: %s", machine_key.host_class, error)
        return None, error.headline
    if replace(machine_key, **{name: getattr(endpoint, name) for name in OF_A_HOST}) != machine_key:
        return None, f"{endpoint.name} answered, which is another machine"
    return machine, ""


def remeasure_if_beaten(runtime: Runtime, job_id: str) -> None:
    """Measure a finished job's machine again if its probe was disturbed or a trial was
    faster than its peak. Jobs that exist already keep the earlier result."""
    with runtime.database.session() as session:
        job = Jobs(session).get(job_id, None)
        if job.context_id is None or job.state != JobState.DONE:
            return
        machine_key = machine_key_of(Contexts(session).get(job.context_id))
        machine = Devices(session).find_outdated_machine(machine_key, SURE_SEC, current_code_name())
        if machine is None:
            return
        # If the measured peak is far too low, honest times are refused and cannot beat it.
        has_refused = Trials(session).has_failure_with(job.id, REFUSED)
        is_beaten = has_refused or max(_workload_peak_shares(session, job, machine), default=0.0) > BEATEN
        if not (machine.disturbed or is_beaten):
            return
        target = Target(Targets(session).get(job.target_id).text)
    log.warning("%s: what its machine computes is measured once more", machine_key.host_class)
    measure_and_store_machine(runtime, machine_key, target, doubted=True)


def _workload_peak_shares(session: Session, job: Job, machine: Machine) -> Iterator[float]:
    """Yield each workload's fastest rate as a share of the peak for its data types."""
    for workload in Workloads(session).get_many([task.workload_id for task in Tasks(session).list(job.id)]):
        types = {dtype for _, dtype, _ in unpack_arguments(workload.args).args}
        if not types & machine.gflops.keys():
            continue
        for trial in Trials(session, job).best(workload.id, job.target_id, 1, job.context_id):
            if trial.latency_us:
                yield workload.flops / trial.latency_us / 1e3 / peak_gflops(machine, types)
