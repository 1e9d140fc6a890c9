"""Times the kernels of a compiled model while it runs, with caches as the model leaves them."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

from mallorn.workers.device.device_kind import Clock, DeviceKind

FEWEST_RUNS: Final = 5
_BUILTIN: Final = "vm.builtin."
# SplitLayoutRewritePreproc gives this suffix to the function that remains after the split.
PREPACKED: Final = "_prepacked"


class HostClock:
    """The host's clock; it waits for the device at each mark."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._moments: list[float] = []

    def begin_run(self) -> None:
        self._moments = []

    def record_mark(self) -> int:
        self._sync()
        self._moments.append(time.perf_counter())
        return len(self._moments) - 1

    def end_run(self) -> None:
        """Do nothing: each mark has already waited for the device."""

    def seconds_between(self, begin: int, end: int) -> float:
        return self._moments[end] - self._moments[begin]


def clock_of(kind: DeviceKind, sync: Callable[[], None]) -> Clock:
    """Return the clock for kernels of a device of this kind; `sync` waits for the device."""
    return kind.cache_clock() or HostClock(sync)


class Kernels:
    """Times the kernels of a Relax virtual machine with an instrument, which slows it down
    and cannot be removed. `run` runs the model; `set_instrument` is the machine's."""

    def __init__(self, set_instrument: Callable[..., Any], run: Callable[[], Any], clock: Clock) -> None:
        self._run_model = run
        self._clock = clock
        self._begin_marks: dict[str, int] = {}
        self._intervals: list[tuple[str, int, int]] = []
        set_instrument(self._record_call)

    def measure_times_us(self, seconds: float) -> dict[str, float]:
        """Return, by task name, the microseconds per run that all calls of a kernel take
        together. Medians of the runs that fit `seconds`, at least FEWEST_RUNS."""
        self._time_one_run()
        runs: dict[str, list[float]] = defaultdict(list)
        deadline, count = time.perf_counter() + seconds, 0
        while count < FEWEST_RUNS or time.perf_counter() < deadline:
            for name, spent_sec in self._time_one_run().items():
                runs[name].append(spent_sec * 1e6)
            count += 1
        return {name: median(times) for name, times in runs.items()}

    def _time_one_run(self) -> Mapping[str, float]:
        self._intervals.clear()
        self._clock.begin_run()
        self._run_model()
        self._clock.end_run()
        seconds_by_name: defaultdict[str, float] = defaultdict(float)
        for name, begin, end in self._intervals:
            seconds_by_name[name] += self._clock.seconds_between(begin, end)
        return seconds_by_name

    def _record_call(self, _function: Any, symbol: str, before_run: bool, *_arguments: Any) -> int:
        if not symbol.startswith(_BUILTIN):
            mark = self._clock.record_mark()
            if before_run:
                self._begin_marks[symbol] = mark
            else:
                self._intervals.append((symbol.removesuffix(PREPACKED), self._begin_marks[symbol], mark))
        return 0  # go on
