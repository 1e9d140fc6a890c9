"""Times the kernels of a compiled model where they run, with the caches as the model leaves them.

A model for CUDA is compiled with calls of `vm.builtin.cuda_graph.run_or_capture`. A machine whose kernels are
timed runs no CUDA graphs: an instrument sees one such call in the place of all its kernels, and an event
cannot be recorded while a graph is captured.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from statistics import median
from typing import Any, Final

import tvm_ffi

from workers.device.cuda_clock import CudaClock

FEWEST_RUNS: Final = 5
_BUILTIN: Final = "vm.builtin."
RUN_OR_CAPTURE: Final = f"{_BUILTIN}cuda_graph.run_or_capture"
# What SplitLayoutRewritePreproc calls the part of a function that is left to run.
PREPACKED: Final = "_prepacked"


class HostClock:
    """The host's clock with the methods of a CudaClock, for devices that are awaited at each mark."""

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
        """Do nothing: the device was awaited."""

    def seconds(self, begin: int, end: int) -> float:
        return self._moments[end] - self._moments[begin]


Clock = HostClock | CudaClock


def clock_of(kind: str, sync: Callable[[], None]) -> Clock:
    """Return the clock for the kernels of a device of this kind; `sync` waits for the device."""
    return CudaClock.of_device() if kind == "cuda" else HostClock(sync)


class Kernels:
    """A virtual machine only for timing kernels: its instrument cannot be removed and slows it down.

    `run` runs the model once; `set_instrument` is the machine's own.
    """

    def __init__(
        self, set_instrument: Callable[..., Any], run: Callable[[], Any], clock: HostClock | CudaClock
    ) -> None:
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


def use_graphs(wanted: int) -> None:
    """Decide for the machines that are made from now on in this process; does nothing without CUDA."""
    if (capture := _tvms_own()) is not None:
        tvm_ffi.register_global_func(RUN_OR_CAPTURE, capture if wanted else _run, override=True)


@cache
def _tvms_own() -> Any:
    """Return TVM's function, as it was before the first change."""
    return tvm_ffi.get_global_func(RUN_OR_CAPTURE, allow_missing=True)


def _run(machine: Any, part: Any, arguments: Any, *_cache_key: Any) -> Any:
    """Call a part of a model as an ordinary function."""
    return tvm_ffi.get_global_func("vm.builtin.invoke_closure")(machine, part, *arguments)
