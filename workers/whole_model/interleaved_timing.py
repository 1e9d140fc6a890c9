"""Times engines that hold one model: bursts in turn, each engine stopped while another runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Final, Protocol

from mallorn.core.values.finish_report import ModelLatency
from workers.subprocesses.errors import ChildError

PASSES: Final = 5
BURST_US: Final = 150_000.0
MOST_CALLS: Final = 1000
# An engine that takes so long, and so many times as long as the fastest, is called once.
SLOW_US: Final = 1_000_000.0
FAR_BEHIND: Final = 5.0


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
    calls = {name: max(1, min(MOST_CALLS, int(BURST_US / max(us, 1.0)))) for name, us in once_us.items()}
    behind_us = max(SLOW_US, FAR_BEHIND * min(once_us.values(), default=0.0))
    bursts = {name: [us] if us > behind_us else [] for name, us in once_us.items()}
    quick = {name: engine for name, engine in engines.items() if not bursts[name]}
    for _ in range(passes):
        for name, engine in quick.items():
            bursts[name] += _burst(engine, calls[name])
    ranges = {name: interval(values) for name, values in bursts.items()}
    return {
        name: ModelLatency(median=median(values), low=ranges[name][0], high=ranges[name][1], bursts=values)
        for name, values in bursts.items()
    }


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


def interval(times_us: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the median from the order of the times; below six of them their whole range."""
    ordered = sorted(times_us)
    count = len(ordered)
    cut = max(0, int((count - 1.96 * count**0.5) / 2)) if count >= 6 else 0
    return ordered[cut], ordered[-1 - cut]


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
