"""Times engines that hold one model: bursts in turn, each engine stopped while another runs."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from statistics import median
from typing import Final, Protocol

from mallorn.core.values.finish_report import Conditions, ModelLatency
from mallorn.results.speedup import TUNED, interval, raced
from workers.host.load_meter import Load
from workers.subprocesses.errors import ChildError

PASSES: Final = 5
BURST_US: Final = 150_000.0
MOST_CALLS: Final = 1000
# An engine that takes so long, and so many times as long as the fastest, is called once.
SLOW_US: Final = 1_000_000.0
FAR_BEHIND: Final = 5.0
MOST_RACES: Final = 3
# No race begins later than this.
LAST_START_SEC: Final = 90.0
QUIET_PATIENCE_SEC: Final = 10.0
# For bursts of two engines in turn until the interval of their ratio tells 3 %; no pair begins later.
PAIRS_SEC: Final = 12.0
MOST_PAIRS: Final = 80
# Bursts of one engine that are further apart did not meet the same machine.
FAR_APART: Final = 1.5


class Timeable(Protocol):
    """What holds a model: a process of ours (`whole_model_engine`) or of other makers, or a device."""

    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def kill(self) -> None: ...
    def time_bursts(self, bursts: int, number: int) -> list[float]: ...


class KernelRacer(Timeable, Protocol):
    """One that tells its kernels apart."""

    def time_kernels(self, seconds: float) -> dict[str, float]: ...


def time_interleaved(engines: Mapping[str, Timeable], passes: int = PASSES) -> dict[str, ModelLatency]:
    """Latencies in microseconds: the median of an engine's bursts, its interval, and the bursts.

    In turn, so that a slow spell of the machine hits all; stopped, because onnxruntime's threads spin on
    after a call, at the cost of whoever runs next.
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


def tell_apart(
    engines: Mapping[str, Timeable], latency_us: Mapping[str, ModelLatency]
) -> dict[str, ModelLatency]:
    """Time the tuned model and its rival in turn until the interval of their ratio tells 3 %, or time is up.

    The number of pairs doubles between two looks: a look after each pair would stop too early.
    """
    found, until_sec = dict(latency_us), time.monotonic() + PAIRS_SEC
    while (race := raced(found)) is not None and 0 < race.pairs < MOST_PAIRS and not race.precise:
        bursts = {name: list(found[name].bursts) for name in (TUNED, race.rival)}
        for _ in range(race.pairs):
            if time.monotonic() > until_sec:
                break
            for name, values in bursts.items():
                values += _burst(engines[name], _calls(found[name].median))
        found |= {name: _latency(values) for name, values in bursts.items()}
        if time.monotonic() > until_sec:
            break
    return found


def time_kernels_interleaved(
    engines: Sequence[KernelRacer], seconds: float, passes: int = PASSES
) -> list[dict[str, float]]:
    """Microseconds that each engine's model spends in each of its kernels: medians over bursts in turn."""
    bursts: list[list[dict[str, float]]] = [[] for _ in engines]
    for engine in engines:
        engine.suspend()
    for _ in range(passes):
        for engine, seen in zip(engines, bursts, strict=True):
            with _running(engine):
                seen.append(engine.time_kernels(seconds / passes))
    return [{name: median(burst[name] for burst in seen) for name in seen[0]} for seen in bursts]


def _calls(once_us: float) -> int:
    """Return how many calls make a burst."""
    return max(1, min(MOST_CALLS, int(BURST_US / max(once_us, 1.0))))


def _latency(bursts_us: list[float]) -> ModelLatency:
    low, high = interval(bursts_us)
    return ModelLatency(median=median(bursts_us), low=low, high=high, bursts=bursts_us)


def _burst(engine: Timeable, number: int) -> list[float]:
    with _running(engine):
        return engine.time_bursts(bursts=1, number=number)


@contextmanager
def _running(engine: Timeable) -> Iterator[None]:
    engine.resume()
    try:
        yield
    except ChildError:
        engine.kill()
        raise
    engine.suspend()


class Meter(Protocol):
    """Tells how busy the host was since the last look; workers.host.load_meter has the real one."""

    def look(self) -> Load: ...
    def wait_for_quiet(self, patience_sec: float) -> None: ...


@dataclass(frozen=True, slots=True)
class FairRace:
    """What `race` found, and how far it can be trusted."""

    latency_us: dict[str, ModelLatency]
    disturbances: tuple[str, ...]
    disturbance: float
    races: int = 1

    @property
    def conditions(self) -> Conditions:
        """As the report has it: the note is a sentence for people, empty when all was quiet."""
        if not self.disturbances:
            return Conditions(steady=True, note="")
        again = f" It was timed {self.races} times, and the quietest counts." if self.races > 1 else ""
        told = ", and ".join(self.disturbances)
        return Conditions(steady=False, note=f"While the whole model was timed, {told}.{again}")


def time_undisturbed(engines: Mapping[str, Timeable], meter: Meter, alone: bool) -> FairRace:
    """Race until nothing disturbs, a few times at most; the least disturbed race counts, for all engines.

    An engine that was so far behind that it was called once is not called again. More bursts of the tuned
    model and its rival follow while their ratio is uncertain.
    """
    started_sec = time.monotonic()
    races: list[FairRace] = []
    hopeless: dict[str, ModelLatency] = {}
    while True:
        meter.look()
        held = {name: engine for name, engine in engines.items() if name not in hopeless}
        latency_us = time_interleaved(held) | hopeless
        hopeless = {name: one for name, one in latency_us.items() if len(one.bursts) == 1}
        load = meter.look()
        told = load.words()
        spreads = {name: max(one.bursts) / min(one.bursts) for name, one in latency_us.items()}
        widest, spread = max(spreads.items(), key=lambda each: each[1])
        if spread > FAR_APART:
            told.append(f"the slowest burst of {widest} took {spread:.1f} times as long as its fastest")
        if not alone:
            told.append("other work of this service went on beside it")
        races.append(FairRace(latency_us, tuple(told), load.share + log(spread)))
        late = time.monotonic() - started_sec > LAST_START_SEC
        if not races[-1].disturbances or late or len(races) == MOST_RACES:
            best = min(races, key=lambda one: (bool(one.disturbances), one.disturbance))
            meter.look()
            latency_us = tell_apart(engines, best.latency_us)
            disturbances = best.disturbances or tuple(meter.look().words())
            return FairRace(latency_us, disturbances, best.disturbance, len(races))
        meter.wait_for_quiet(QUIET_PATIENCE_SEC)
