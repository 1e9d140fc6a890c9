"""Measures a machine: probes are built here and run on a device or this host, which is theirs meanwhile."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import log2, sqrt
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from mallorn.core.errors import Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.outcomes import is_disturbed
from mallorn.core.targets import Target
from mallorn.core.values.machine import Cache, Machine
from workers.device.device_class import DeviceClass, Endpoint
from workers.device.slice_timing_result import Slice
from workers.host.host_lock import HostLock
from workers.interfaces.candidate_compiler import CandidateCompiler
from workers.interfaces.hardware_probes import Finds, Probe, by_library
from workers.interfaces.whole_model_engine import Engine
from workers.process.worker_runtime import Runtime
from workers.sandbox.untrusted_files import untrusted_folder
from workers.subprocesses.errors import ChildError

LIBRARY_SEC: Final = 60.0
PAYS: Final = 1.05  # narrower vectors must be so much faster to be taken
UNSPILLED: Final = 0.8  # of the peak: up to so many sums none is spilled
FALLS: Final = 0.04  # log2 of the bandwidth from one size to the next, where a cache begins to overflow
LEVEL: Final = 0.15  # log2 of the bandwidth between two levels


@dataclass(frozen=True, slots=True)
class Timed:
    """A probe and the shortest of its runs."""

    probe: Probe
    run: Slice

    @property
    def seconds(self) -> float:
        return self.run.mean_sec

    @property
    def giga(self) -> float:
        """Operations or bytes a second, in billions."""
        return self.probe.work / self.seconds / 1e9


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


def machine_of(timed: Sequence[Timed], cores: int) -> Machine:
    """The machine that took these times. Raises Unavailable where a part of them is missing."""
    peaks = [each for each in timed if each.probe.finds is Finds.PEAK]
    alone: dict[int, list[Timed]] = defaultdict(list)  # on one core, by lanes
    for each in peaks:
        if each.probe.cores == 1 and each.probe.dtype == "float32":
            alone[each.probe.lanes].append(each)
    curve = {each.probe.bytes: each.giga for each in timed if each.probe.finds is Finds.BANDWIDTH}
    memory = [each.giga for each in timed if each.probe.finds is Finds.MEMORY]
    forks = [each.seconds for each in timed if each.probe.finds is Finds.FORK]
    if not (alone and curve and memory and forks):
        raise Unavailable("the probes of its target did not run on it", hint="mallorn devices")
    widest, *narrower = sorted(alone, reverse=True)
    best = {lanes: max(each.giga for each in found) for lanes, found in alone.items()}
    lanes = next((n for n in narrower if best[n] > PAYS * best[widest]), widest)
    in_flight, registers = _sums(alone[lanes])
    gflops = {"float32": best[lanes]}  # never less than one core alone
    for each in peaks:
        gflops[each.probe.dtype] = max(each.giga, gflops.get(each.probe.dtype, 0.0))
    return Machine(
        cores=cores,
        lanes=lanes,
        registers=registers,
        in_flight=in_flight,
        core_gflops=_rounded(best[lanes]),
        gflops={name: _rounded(rate) for name, rate in gflops.items()},
        caches=tuple(caches(curve)),
        memory_gbytes_per_sec=_rounded(max(memory)),
        fork_us=_rounded(min(forks) * 1e6),
        measured=True,
        disturbed=any(is_disturbed(each.run.disturbed) for each in timed),
    )


def caches(curve: Mapping[int, float]) -> Iterator[Cache]:
    """The levels before memory, of the bandwidth by the size of what is read again and again."""
    sizes = sorted(curve)
    # What is smaller cannot be slower: where it was, something else ran.
    rates = [max(curve[size] for size in sizes[at:]) for at in range(len(sizes))]
    levels = list(_levels(rates))
    for (begin, end), (beyond, until) in pairwise(levels):
        rate, next_rate = median(rates[begin:end]), median(rates[beyond:until])
        holds = max(size for size, at in zip(sizes, rates, strict=True) if at >= sqrt(rate * next_rate))
        yield Cache(bytes=holds, gbytes_per_sec=_rounded(rate))


def _levels(rates: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Where the bandwidth stays what it is, from and to; the last level is memory."""
    flat = [log2(before / after) <= FALLS for before, after in pairwise(rates)]
    begin, last = 0, len(rates) - 1
    for at in range(last):
        ends = flat[at - 1 : at + 1] == [True, False] or (at == begin and not flat[at])
        if ends and log2(rates[at] / rates[_settled(flat, at)]) > LEVEL:
            yield begin, at + 1
            begin = _settled(flat, at)
    yield begin, last + 1


def _settled(flat: Sequence[bool], at: int) -> int:
    """Where a fall that begins at a size is over."""
    return next((later for later in range(at + 1, len(flat)) if flat[later]), len(flat))


def _sums(found: Sequence[Timed]) -> tuple[int, int]:
    """Below how many sums at once a core waits for them, and beyond how many they are spilled."""
    by_sums = sorted(found, key=lambda each: each.probe.sums)
    peak = max(by_sums, key=lambda each: each.giga)
    # So few always wait for each other; where many stop to is chance.
    in_flight = round(by_sums[0].probe.sums * peak.giga / by_sums[0].giga)
    beyond = by_sums[by_sums.index(peak) :]
    *_, last = takewhile(lambda each: each.giga >= UNSPILLED * peak.giga, beyond)
    return in_flight, last.probe.sums


def _rounded(value: float) -> float:
    """To three digits: more than that is chance."""
    return float(f"{value:.3g}")
