# mypy: disable-error-code="empty-body"
"""A process that times libraries on its own cores, with no tracker between."""

import os
from typing import Any, Final

import numpy as np

from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.serve_calls import serve
from mallorn.workers.subprocesses.typed_method import collect_handlers, method

REPEATS: Final = 5
REPEAT_MS: Final = 6
FAR_BEHIND: Final = 1.6  # one short timing is enough for what is so much slower than the best


class Clock(Child):
    """Times what a compiler built."""

    MODULE = "benchmarks.oracle.clock"

    @method(limit_sec=20.0)
    def time(self, artifact: str, args: Arguments, best_us: float | None, repeats: int) -> list[float]:
        """Microseconds of each repeat; a single rough one for what is far behind the best."""


_kept: dict[int, tuple[Any, Any]] = {}


def time(artifact: str, args: Arguments, best_us: float | None, repeats: int) -> list[float]:
    """See Clock.time."""
    import tvm

    library = tvm.runtime.load_module(artifact)
    tensors = [_tensor(index, args) for index in range(len(args.args))]
    library["main"](*tensors)
    rough_us = _run_us(library, tensors, 1, 2)
    if best_us is not None and rough_us > FAR_BEHIND * best_us:
        return [rough_us]
    number = max(1, round(REPEAT_MS * 1000 / rough_us))
    return [_run_us(library, tensors, number, 0) for _ in range(repeats)]


def _run_us(library: Any, tensors: list[Any], number: int, least_ms: int) -> float:
    import tvm

    timer = library.time_evaluator("main", tvm.cpu(), number=number, repeat=1, min_repeat_ms=least_ms)
    return float(timer(*tensors).results[0]) * 1e6


def _tensor(index: int, args: Arguments) -> Any:
    """A random argument; the last candidate's is kept, as a device does."""
    import tvm

    _, dtype, shape = args.args[index]
    known = _kept.get(index)
    if known is None or known[0] != (dtype, shape):
        low, high = args.ranges.get(
            str(index), (0, 1) if dtype.startswith(("int", "uint", "bool")) else (0.1, 1.0)
        )
        drawn = np.random.default_rng(index).uniform(low, high, shape)
        _kept[index] = (dtype, shape), tvm.runtime.tensor(drawn.astype(dtype))
    return _kept[index][1]


if __name__ == "__main__":
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"
    serve(collect_handlers(Clock, Clock.time.make_handler(time)))
