"""Measures a machine: probes are built here and run on a device or this host, which is theirs meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from mallorn.core.errors import Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine
from workers.device.device_class import DeviceClass, Endpoint
from workers.hardware_probe.machine_from_probe_times import Timed, machine_of
from workers.host.host_lock import HostLock
from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.interfaces.hardware_probes import Probe, by_library
from workers.interfaces.whole_model_engine import Engine
from workers.process.worker_runtime import Runtime
from workers.sandbox.untrusted_files import untrusted_folder
from workers.subprocesses.errors import ChildError

LIBRARY_SEC: Final = 60.0


def measure(runtime: Runtime, target: Target, like: DeviceClass) -> tuple[Endpoint, Machine]:
    """Who was measured, and what it computes and moves. Raises MallornError where that is not to be had."""
    runtime.fleet.describe(target)  # else nothing is built
    runtime.runner.start()  # meanwhile
    with untrusted_folder("probes-", runtime.builds) as probing:
        folder = str(probing)
        with HostLock().shared():
            probes = runtime.compiler.build_probes(target.text, folder)
        try:
            endpoint, timed = _on_device(runtime, target, like, folder, probes)
        finally:
            runtime.release_device()
    return endpoint, machine_of(timed, target.num_cores)


def _on_device(
    runtime: Runtime, target: Target, like: DeviceClass, folder: str, probes: Sequence[Probe]
) -> tuple[Endpoint, list[Timed]]:
    tracker, runner = runtime.settings.tracker, runtime.runner
    endpoint = runner.identity(tracker, target.text, like=like)
    here = endpoint.host_id == host_id()
    timed: list[Timed] = []
    # Taken before the host is ours alone: nobody waits in a circle.
    with HostLock().alone() if here else nullcontext(True) as alone:
        if not alone:
            raise Unavailable("others worked on the device's host all the time", hint="mallorn devices")
        for group in by_library(probes):
            runner.identity(tracker, target.text, hold=not here, like=like)
            runs = runner.clock(tracker, target.text, folder, group, LIBRARY_SEC)
            timed += [Timed(*each) for each in zip(group, runs, strict=False)]
    return endpoint, timed


def machine_here(target: Target, env: Mapping[str, str] | None = None) -> Machine:
    """What the cores of this host, as many as the target has, compute and move: without service and device.

    Raises Unavailable where the target's probes do not run here.
    """
    if not target.is_cpu:
        raise Unavailable(f"what {target.kind} computes is not measured")
    with TemporaryDirectory(prefix="mallorn-probes-") as folder:
        return machine_of(list(_here(target, folder, dict(env or {}))), target.num_cores)


def _here(target: Target, folder: str, env: dict[str, str]) -> Iterator[Timed]:
    with CandidateCompiler(env=env, room=Path(folder)) as compiler:
        probes = compiler.build_probes(target.text, folder)
    with (
        Engine(env={"TVM_NUM_THREADS": str(target.num_cores), **env}, room=Path(folder)) as engine,
        HostLock().alone(),
    ):
        for group in by_library(probes):
            with suppress(ChildError):  # an instruction that this machine lacks
                runs = engine.clock(folder, group)
                yield from (Timed(*each) for each in zip(group, runs, strict=True))
