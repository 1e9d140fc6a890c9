"""Measure a machine: build probes here and run them on an otherwise idle device or host."""

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
from mallorn.core.values.machine import Cache, Machine, MachineKind, assume_typical_cpu
from mallorn.workers.device.device_class import DeviceClass, Endpoint
from mallorn.workers.device.slice_timing_result import Slice
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.hardware_probes import Finds, Probe, group_by_library
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.sandbox.untrusted_files import untrusted_folder
from mallorn.workers.subprocesses.errors import ChildError

LIBRARY_SEC: Final = 60.0
PAYS: Final = 1.05  # narrower vectors are preferred only if they are faster by this factor
UNSPILLED: Final = 0.8  # share of the peak; slower sums count as spilled
FALLS: Final = 0.04  # drop of log2(bandwidth) between two sizes at which a cache overflows
LEVEL: Final = 0.15  # least difference of log2(bandwidth) between two levels


@dataclass(frozen=True, slots=True)
class TimedProbe:
    probe: Probe
    run: Slice

    @property
    def seconds(self) -> float:
        return self.run.mean_sec

    @property
    def giga_per_second(self) -> float:
        """Billions of operations or bytes per second."""
        return self.probe.work / self.seconds / 1e9


def probe_device_machine(
    runtime: Runtime, target: Target, device_class: DeviceClass
) -> tuple[Endpoint, Machine]:
    """Probe a device of this class; return it and its speeds. Raises MallornError."""
    runtime.fleet.find_device(target)  # raises before anything is built
    runtime.runner.start()  # starts while the probes are built
    with untrusted_folder("probes-", runtime.builder_folder) as probing:
        folder = str(probing)
        with HostLock().hold_shared():
            probes = runtime.compiler.build_probes(target.text, folder)
        try:
            tracker, runner = runtime.settings.tracker, runtime.runner
            endpoint = runner.take_device(tracker, target.text, like=device_class)
            is_local = endpoint.host_id == host_id()
            timings: list[TimedProbe] = []
            # The device is acquired before the exclusive host lock; this order avoids a deadlock.
            with HostLock().hold_exclusive() if is_local else nullcontext(True) as has_lock:
                if not has_lock:
                    raise Unavailable(
                        "other programs used the device's host in every attempt", hint="mallorn devices"
                    )
                for group in group_by_library(probes):
                    runner.take_device(tracker, target.text, hold=not is_local, like=device_class)
                    runs = runner.time_probes(tracker, target.text, folder, group, LIBRARY_SEC)
                    timings += [TimedProbe(*pair) for pair in zip(group, runs, strict=False)]
                if not target.runs_on_cores:
                    reported = runner.accelerator_attributes(tracker, target.text, LIBRARY_SEC)
        finally:
            runtime.release_device()
    if target.runs_on_cores:
        return endpoint, derive_machine(timings, target.num_cores)
    typical = target.hardware.part(MachineKind).assume_machine(target.attrs, reported=reported)
    return endpoint, derive_accelerator(timings, typical)


def probe_host_machine(target: Target, env: Mapping[str, str] | None = None) -> Machine:
    """Measure as many cores of this host as the target has, without a service or a device.
    Raises Unavailable if the target is no CPU or its probes do not run here."""
    if not target.runs_on_cores:
        raise Unavailable(f"the peak of {target.kind} devices is not measured")
    with TemporaryDirectory(prefix="mallorn-probes-") as folder:
        timings: list[TimedProbe] = []
        variables = dict(env or {})
        with CandidateCompiler(env=variables, room=Path(folder)) as compiler:
            probes = compiler.build_probes(target.text, folder)
        with (
            Engine(env={"TVM_NUM_THREADS": str(target.num_cores), **variables}, room=Path(folder)) as engine,
            HostLock().hold_exclusive(),
        ):
            for group in group_by_library(probes):
                with suppress(ChildError):  # crashes if the machine lacks one of its instructions
                    runs = engine.time_probes(folder, group)
                    timings += [TimedProbe(*pair) for pair in zip(group, runs, strict=True)]
        return derive_machine(timings, target.num_cores)


def derive_machine(timings: Sequence[TimedProbe], cores: int) -> Machine:
    """Derive a machine's speeds. Raises Unavailable if probes are missing."""
    peaks = [timing for timing in timings if timing.probe.finds is Finds.PEAK]
    one_core: dict[int, list[TimedProbe]] = defaultdict(list)  # float32 on a single core, by lanes
    for timing in peaks:
        if timing.probe.cores == 1 and timing.probe.dtype == "float32":
            one_core[timing.probe.lanes].append(timing)
    curve = {t.probe.bytes: t.giga_per_second for t in timings if t.probe.finds is Finds.BANDWIDTH}
    memory = [timing.giga_per_second for timing in timings if timing.probe.finds is Finds.MEMORY]
    forks = [timing.seconds for timing in timings if timing.probe.finds is Finds.FORK]
    if not (one_core and curve and memory and forks):
        raise Unavailable("the probes for the target did not run on the device", hint="mallorn devices")
    widest, *narrower = sorted(one_core, reverse=True)
    best = {lanes: max(timing.giga_per_second for timing in runs) for lanes, runs in one_core.items()}
    lanes = next((n for n in narrower if best[n] > PAYS * best[widest]), widest)
    # How many parallel sums hide the latency, and the most sums without spilling. The
    # fewest sums are always latency-bound; where exactly rates stop growing is noise.
    by_sums = sorted(one_core[lanes], key=lambda timing: timing.probe.sums)
    fastest = max(by_sums, key=lambda timing: timing.giga_per_second)
    parallel_sums = round(by_sums[0].probe.sums * fastest.giga_per_second / by_sums[0].giga_per_second)
    from_fastest = by_sums[by_sums.index(fastest) :]
    *_, last = takewhile(lambda t: t.giga_per_second >= UNSPILLED * fastest.giga_per_second, from_fastest)
    gflops = {"float32": best[lanes]}  # at least the peak of a single core
    for timing in peaks:
        gflops[timing.probe.dtype] = max(timing.giga_per_second, gflops.get(timing.probe.dtype, 0.0))
    return Machine(
        cores=cores,
        lanes=lanes,
        registers=last.probe.sums,
        in_flight=parallel_sums,
        core_gflops=_rounded(best[lanes]),
        gflops={name: _rounded(rate) for name, rate in gflops.items()},
        caches=tuple(detect_cache_levels(curve)),
        memory_gbytes_per_sec=_rounded(max(memory)),
        fork_us=_rounded(min(forks) * 1e6),
        measured=True,
        disturbed=any(is_disturbed(timing.run.disturbed) for timing in timings),
    )


def derive_accelerator(timings: Sequence[TimedProbe], typical: Machine) -> Machine:
    """Derive an accelerator's speeds. Types without a probe have the rates of a typical
    one. Raises Unavailable if probes are missing."""
    best: dict[Finds, list[float]] = defaultdict(list)
    gflops: dict[str, float] = {}
    levels: dict[int, float] = {}
    for timing in timings:
        probe, rate = timing.probe, timing.giga_per_second
        best[probe.finds].append(rate)
        if probe.finds is Finds.PEAK:
            gflops[probe.dtype] = max(rate, gflops.get(probe.dtype, 0.0))
        elif probe.finds is Finds.BANDWIDTH:
            levels[probe.bytes] = rate / typical.cores
    if "float32" not in gflops or len(levels) < len(typical.caches) or len(best) < len(Finds):
        raise Unavailable("the probes for the target did not run on the device", hint="mallorn devices")
    rates = [_rounded(levels[size]) for size in sorted(levels)]
    caches = zip((cache.bytes for cache in typical.caches), rates, strict=True)
    return typical.model_copy(
        update={
            "core_gflops": _rounded(gflops["float32"] / typical.cores),
            "gflops": {name: _rounded(rate) for name, rate in (typical.gflops | gflops).items()},
            "caches": tuple(Cache(bytes=n, gbytes_per_sec=rate) for n, rate in caches),
            "memory_gbytes_per_sec": _rounded(max(best[Finds.MEMORY])),
            "fork_us": _rounded(min(t.seconds for t in timings if t.probe.finds is Finds.FORK) * 1e6),
            "measured": True,
            "disturbed": any(is_disturbed(timing.run.disturbed) for timing in timings),
        }
    )


def detect_cache_levels(curve: Mapping[int, float]) -> Iterator[Cache]:
    """Yield the cache levels from a curve of bandwidth (GB/s) by working-set size (bytes).

    Where narrow vectors read memory as fast as the nearest cache, the curve shows no level;
    the nearest cache then has a typical size.
    """
    sizes = sorted(curve)
    # A smaller working set cannot be slower; if it was, another program disturbed the probe.
    rates = [max(curve[size] for size in sizes[start:]) for start in range(len(sizes))]
    levels = list(_find_constant_ranges(rates))
    for (begin, end), (next_begin, next_end) in pairwise(levels):
        rate, next_rate = median(rates[begin:end]), median(rates[next_begin:next_end])
        holds = max(size for size, speed in zip(sizes, rates, strict=True) if speed >= sqrt(rate * next_rate))
        yield Cache(bytes=holds, gbytes_per_sec=_rounded(rate))
    if len(levels) == 1:
        nearest = assume_typical_cpu(cores=1, lanes=1).caches[0]
        yield Cache(bytes=nearest.bytes, gbytes_per_sec=_rounded(median(rates)))


def _find_constant_ranges(rates: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) indices of constant bandwidth; the last range is memory."""
    is_flat = [log2(rate / next_rate) <= FALLS for rate, next_rate in pairwise(rates)]
    begin, last = 0, len(rates) - 1
    for i in range(last):
        ends = is_flat[i - 1 : i + 1] == [True, False] or (i == begin and not is_flat[i])
        if ends and log2(rates[i] / rates[_end_of_fall(is_flat, i)]) > LEVEL:
            yield begin, i + 1
            begin = _end_of_fall(is_flat, i)
    yield begin, last + 1


def _end_of_fall(is_flat: Sequence[bool], start: int) -> int:
    """Return the index after `start` at which the bandwidth is flat again."""
    return next((i for i in range(start + 1, len(is_flat)) if is_flat[i]), len(is_flat))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
