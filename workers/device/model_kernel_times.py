"""Times the kernels of a compiled model where they run, with the caches as the model leaves them."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, Final

FEWEST_RUNS: Final = 5
_BUILTIN: Final = "vm.builtin."
# What SplitLayoutRewritePreproc calls the part of a function that is left to run.
PREPACKED: Final = "_prepacked"


class Kernels:
    """A virtual machine only for timing kernels: its instrument cannot be removed and slows it down.

    `run` runs the model once; `set_instrument` is the machine's own.
    """

    def __init__(
        self, set_instrument: Callable[..., Any], run: Callable[[], Any], sync: Callable[[], None]
    ) -> None:
        self._run_model = run
        self._sync = sync
        self._began: dict[str, float] = {}
        self._spent: defaultdict[str, float] = defaultdict(float)
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
        self._spent = defaultdict(float)
        self._run_model()
        return self._spent

    def _watch(self, _function: Any, symbol: str, before_run: bool, *_rest: Any) -> int:
        if not symbol.startswith(_BUILTIN):
            self._sync()
            now = time.perf_counter()
            if before_run:
                self._began[symbol] = now
            else:
                self._spent[symbol.removesuffix(PREPACKED)] += now - self._began[symbol]
        return 0  # go on
