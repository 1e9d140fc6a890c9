"""The probes of a real device say what its machine computes and moves."""

from pathlib import Path

from mallorn.cli import host_checks
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from mallorn.workers.hardware_probe.measure_machine import probe_device_machine
from mallorn.workers.process.worker_runtime import Runtime
from tests.fixtures.fleet import TestFleet


def test_a_device_is_measured_and_free_again(fleet: TestFleet, local_target: Target, tmp_path: Path) -> None:
    runtime = Runtime(Settings(tracker=fleet.address, data_dir=tmp_path))
    try:
        like = runtime.fleet.find_device(local_target).device_class
        endpoint, machine = probe_device_machine(runtime, local_target, like)
    finally:
        runtime.close()
    assert endpoint.name == "device"
    assert machine.measured
    assert machine.cores == local_target.num_cores
    assert 1 < machine.in_flight <= machine.registers
    assert machine.gflops["float32"] >= machine.core_gflops
    assert machine.caches[0].gbytes_per_sec > machine.memory_gbytes_per_sec / machine.cores
    assert all(line.startswith("machine/") for line in fleet.executions())
    fleet.wait_free(local_target)


def test_the_check_builds_and_runs_a_kernel(local_target: Target) -> None:
    assert "ran" in host_checks.check_kernel(local_target)
