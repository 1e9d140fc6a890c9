"""Measures the machine that this process runs on, without a service and without a device."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from mallorn.core.errors import Unavailable
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine
from workers.hardware_probe.machine_from_probe_times import Timed, machine_of
from workers.host.host_lock import HostLock
from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.interfaces.hardware_probes import by_library
from workers.interfaces.whole_model_engine import Engine
from workers.subprocesses.errors import ChildError


def machine_here(target: Target, env: Mapping[str, str] | None = None) -> Machine:
    """What the cores of this host, as many as the target has, compute and move.

    Raises Unavailable where the target's probes do not run here.
    """
    if not target.is_cpu:
        raise Unavailable(f"what {target.kind} computes is not measured")
    with TemporaryDirectory(prefix="mallorn-probes-") as folder:
        return machine_of(list(_timed(target, folder, dict(env or {}))), target.num_cores)


def _timed(target: Target, folder: str, env: dict[str, str]) -> Iterator[Timed]:
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
