"""Times the kernels of a compiled model where they run, with the caches as the model leaves them."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final, Protocol

from workers.device.cuda_clock import CudaClock

FEWEST_RUNS: Final = 5
_BUILTIN: Final = "vm.builtin."
# What SplitLayoutRewritePreproc calls the part of a function that is left to run.
PREPACKED: Final = "_prepacked"
# A GPU is kept busy before a run for this many times the seconds in which the host queued the last run.
LEAD: Final = 1.2
# By fills of a part of its L2 cache, so that the rest stays as the model left it; a queue holds about 1000.
FILL_SHARE: Final = 0.25
MOST_FILLS: Final = 800


class Clock(Protocol):
    """Marks moments between kernels."""

    def begin_run(self) -> None:
        """Prepare for a run of the model."""

    def mark(self) -> int:
        """Mark the present moment, and return the mark's number."""

    def end_run(self) -> None:
        """Wait until the run is over."""

    def seconds(self, begin: int, end: int) -> float:
        """Return the seconds between two marks of the run that is over."""


class HostClock:
    """The host's clock, for devices that are awaited at each mark."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._moments: list[float] = []

    def begin_run(self) -> None:
        self._moments = []

    def mark(self) -> int:
        self._sync()
        self._moments.append(time.perf_counter())
        return len(self._moments) - 1

    def end_run(self) -> None:
        pass

    def seconds(self, begin: int, end: int) -> float:
        return self._moments[end] - self._moments[begin]


class GpuClock:
    """CUDA events in the queue of a GPU, for which the host waits once a run.

    The GPU is kept busy with fills of memory until the host has queued the whole run. It would wait for the
    host before every kernel otherwise, and each launch would count as its kernel's time.
    """

    def __init__(self, cuda: CudaClock) -> None:
        self._cuda = cuda
        cuda.fill(FILL_SHARE)  # the first fill allocates
        begin = cuda.mark()
        cuda.fill(FILL_SHARE)
        end = cuda.mark()
        cuda.wait()
        self._fill_sec = cuda.seconds(begin, end)
        self._queue_sec = self._began_sec = 0.0

    def begin_run(self) -> None:
        self._cuda.forget()
        for _ in range(min(MOST_FILLS, round(LEAD * self._queue_sec / max(self._fill_sec, 1e-6)))):
            self._cuda.fill(FILL_SHARE)
        self._began_sec = time.perf_counter()

    def mark(self) -> int:
        return self._cuda.mark()

    def end_run(self) -> None:
        self._queue_sec = time.perf_counter() - self._began_sec
        self._cuda.wait()

    def seconds(self, begin: int, end: int) -> float:
        return self._cuda.seconds(begin, end)


def clock_of(kind: str, sync: Callable[[], None]) -> Clock:
    """Return the clock for the kernels of a device of this kind; `sync` waits for the device."""
    return GpuClock(CudaClock.of_device()) if kind == "cuda" else HostClock(sync)


class Kernels:
    """A virtual machine only for timing kernels: its instrument cannot be removed and slows it down.

    `run` runs the model once; `set_instrument` is the machine's own.
    """

    def __init__(self, set_instrument: Callable[..., Any], run: Callable[[], Any], clock: Clock) -> None:
        self._run_model = run
        self._clock = clock
        self._began: dict[str, int] = {}
        self._calls: list[tuple[str, int, int]] = []
        set_instrument(self._watch)

    def times(self, seconds: float) -> dict[str, float]:
        """Microseconds that a run spends in each kernel, all calls together; medians over `seconds` of runs.

        A kernel goes by the name of its task.
        """
        self._run()
        runs: dict[str, list[float]] = defaultdict(list)
        deadline, count = time.perf_counter() + seconds, 0
        while count < FEWEST_RUNS or time.perf_counter() < deadline:
            for name, spent_sec in self._run().items():
                runs[name].append(spent_sec * 1e6)
            count += 1
        return {name: median(times) for name, times in runs.items()}

    def _run(self) -> Mapping[str, float]:
        self._calls.clear()
        self._clock.begin_run()
        self._run_model()
        self._clock.end_run()
        spent: defaultdict[str, float] = defaultdict(float)
        for name, begin, end in self._calls:
            spent[name] += self._clock.seconds(begin, end)
        return spent

    def _watch(self, _function: Any, symbol: str, before_run: bool, *_rest: Any) -> int:
        if not symbol.startswith(_BUILTIN):
            mark = self._clock.mark()
            if before_run:
                self._began[symbol] = mark
            else:
                self._calls.append((symbol.removesuffix(PREPACKED), self._began[symbol], mark))
        return 0  # go on
