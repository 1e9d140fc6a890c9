"""Times engines with the same model in turn, each while the others are suspended."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Final, Protocol

from mallorn.core.values.finish_report import Conditions, ModelLatency
from mallorn.results.speedup import TUNED, compare_with_rival, median_confidence_interval
from mallorn.workers.host.load_meter import Load, wait_for_quiet
from mallorn.workers.subprocesses.errors import ChildError

PASSES: Final = 5
BURST_US: Final = 150_000.0
MOST_CALLS: Final = 1000
# An engine slower than SLOW_US and than FAR_BEHIND times the fastest is called only once.
SLOW_US: Final = 1_000_000.0
FAR_BEHIND: Final = 5.0
MOST_RACES: Final = 3
# No race starts later than this after the first.
LAST_START_SEC: Final = 90.0
QUIET_PATIENCE_SEC: Final = 10.0
# Time for `tell_apart`; no pair of bursts starts later.
PAIRS_SEC: Final = 12.0
MOST_PAIRS: Final = 80
# If an engine's slowest burst takes this many times its fastest, the machine was disturbed.
FAR_APART: Final = 1.5


class Timeable(Protocol):
    """An engine with a model that can be timed: a process on this host, or a device."""

    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def kill(self) -> None: ...
    def time_bursts(self, bursts: int, number: int) -> list[float]: ...
    def time_kernels(self, seconds: float) -> dict[str, float]: ...


def time_interleaved(engines: Mapping[str, Timeable], passes: int = PASSES) -> dict[str, ModelLatency]:
    """Return each engine's latency in microseconds: the time of each burst (a series of
    calls), their median and its confidence interval.

    Engines run in turn, so that a slow phase of the machine affects all. The others are
    suspended, since onnxruntime's threads spin after a call and would slow the next engine.
    """
    for engine in engines.values():
        engine.suspend()
    once_us = {name: _burst(engine, 1)[0] for name, engine in engines.items()}
    calls = {name: _calls(us) for name, us in once_us.items()}
    behind_us = max(SLOW_US, FAR_BEHIND * min(once_us.values(), default=0.0))
    bursts = {name: [us] if us > behind_us else [] for name, us in once_us.items()}
    quick = {name: engine for name, engine in engines.items() if not bursts[name]}
    for _ in range(passes):
        for name, engine in quick.items():
            bursts[name] += _burst(engine, calls[name])
    return {name: _latency(values) for name, values in bursts.items()}


def time_until_distinguishable(
    engines: Mapping[str, Timeable], latency_us: Mapping[str, ModelLatency]
) -> dict[str, ModelLatency]:
    """Time the tuned model and its rival (onnxruntime, else the untuned model) until their
    ratio is known to 3 % or time is up. The precision is checked each time the number of
    pairs of bursts has doubled, because checking more often would stop too early."""
    latencies, until_sec = dict(latency_us), time.monotonic() + PAIRS_SEC
    while (
        (race := compare_with_rival(latencies)) is not None
        and 0 < race.pairs < MOST_PAIRS
        and not race.precise
    ):
        bursts = {name: list(latencies[name].bursts) for name in (TUNED, race.rival)}
        for _ in range(race.pairs):
            if time.monotonic() > until_sec:
                break
            for name, values in bursts.items():
                values += _burst(engines[name], _calls(latencies[name].median))
        latencies |= {name: _latency(values) for name, values in bursts.items()}
        if time.monotonic() > until_sec:
            break
    return latencies


def time_kernels_interleaved(
    engines: Sequence[Timeable], seconds: float, passes: int = PASSES
) -> list[dict[str, float]]:
    """Return each engine's microseconds per kernel: medians of bursts, run in turn."""
    bursts: list[list[dict[str, float]]] = [[] for _ in engines]
    for engine in engines:
        engine.suspend()
    for _ in range(passes):
        for engine, samples in zip(engines, bursts, strict=True):
            with _resume_for_timing(engine):
                samples.append(engine.time_kernels(seconds / passes))
    return [{name: median(burst[name] for burst in samples) for name in samples[0]} for samples in bursts]


def _calls(once_us: float) -> int:
    """Return how many calls make up a burst, from the time of one call in microseconds."""
    return max(1, min(MOST_CALLS, int(BURST_US / max(once_us, 1.0))))


def _latency(bursts_us: list[float]) -> ModelLatency:
    low, high = median_confidence_interval(bursts_us)
    return ModelLatency(median=median(bursts_us), low=low, high=high, bursts=bursts_us)


def _burst(engine: Timeable, number: int) -> list[float]:
    with _resume_for_timing(engine):
        return engine.time_bursts(bursts=1, number=number)


@contextmanager
def _resume_for_timing(engine: Timeable) -> Iterator[None]:
    engine.resume()
    try:
        yield
    except ChildError:
        engine.kill()
        raise
    engine.suspend()


@dataclass(frozen=True, slots=True)
class FairRace:
    """Latencies of engines that were timed in turn, and what disturbed the timing."""

    latency_us: dict[str, ModelLatency]
    disturbances: tuple[str, ...]
    disturbance: float
    races: int = 1

    @property
    def conditions(self) -> Conditions:
        """Whether the timing was undisturbed, and a sentence on it for the report."""
        if not self.disturbances:
            return Conditions(steady=True, note="")
        repeats = f" It was timed {self.races} times, and the quietest counts." if self.races > 1 else ""
        causes = ", and ".join(self.disturbances)
        return Conditions(steady=False, note=f"While the whole model was timed, {causes}.{repeats}")


def time_undisturbed(
    engines: Mapping[str, Timeable], read_load: Callable[[], Load], is_alone: bool
) -> FairRace:
    """Time all engines, and repeat this up to MOST_RACES times while other programs disturb
    it. Return the least disturbed result.

    `read_load` returns the load of other programs on the host since its last call.
    An engine that was so slow that it was called only once is not timed again. At the end,
    the tuned model and its rival are timed further until their ratio is precise.
    """
    started_sec = time.monotonic()
    races: list[FairRace] = []
    too_slow: dict[str, ModelLatency] = {}
    while True:
        read_load()
        contenders = {name: engine for name, engine in engines.items() if name not in too_slow}
        latency_us = time_interleaved(contenders) | too_slow
        too_slow = {name: latency for name, latency in latency_us.items() if len(latency.bursts) == 1}
        load = read_load()
        causes = load.disturbance_phrases()
        spreads = {name: max(latency.bursts) / min(latency.bursts) for name, latency in latency_us.items()}
        widest, spread = max(spreads.items(), key=lambda item: item[1])
        if spread > FAR_APART:
            causes.append(f"the slowest burst of {widest} took {spread:.1f} times as long as its fastest")
        if not is_alone:
            causes.append("other work of this service went on beside it")
        races.append(FairRace(latency_us, tuple(causes), load.share + log(spread)))
        is_late = time.monotonic() - started_sec > LAST_START_SEC
        if not races[-1].disturbances or is_late or len(races) == MOST_RACES:
            best = min(races, key=lambda race: (bool(race.disturbances), race.disturbance))
            read_load()
            latency_us = time_until_distinguishable(engines, best.latency_us)
            disturbances = best.disturbances or tuple(read_load().disturbance_phrases())
            return FairRace(latency_us, disturbances, best.disturbance, len(races))
        wait_for_quiet(read_load, QUIET_PATIENCE_SEC)
