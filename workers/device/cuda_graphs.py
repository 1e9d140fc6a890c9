"""Whether virtual machines run parts of a model as CUDA graphs: not where each kernel is timed by itself.

A model for CUDA is compiled with calls of `vm.builtin.cuda_graph.run_or_capture`. An instrument sees one such
call in the place of all its kernels, and an event cannot be recorded while a graph is captured.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import tvm_ffi

RUN_OR_CAPTURE: Final = "vm.builtin.cuda_graph.run_or_capture"
_INVOKE: Final = "vm.builtin.invoke_closure"


def use_graphs(wanted: int) -> None:
    """Decide for the machines that are made from now on in this process; does nothing without CUDA."""
    capture = _captures()
    if capture is not None:
        function = capture if wanted else _run
        tvm_ffi.register_global_func(RUN_OR_CAPTURE, function, override=True)


@contextmanager
def graphs_off() -> Iterator[None]:
    """Make machines that run every kernel by itself."""
    use_graphs(0)
    try:
        yield
    finally:
        use_graphs(1)


@cache
def _captures() -> Any:
    """Return TVM's own function, as it was before the first change."""
    return tvm_ffi.get_global_func(RUN_OR_CAPTURE, allow_missing=True)


def _run(machine: Any, part: Any, arguments: Any, *_cache_key: Any) -> Any:
    """Call a part of a model as an ordinary function."""
    return tvm_ffi.get_global_func(_INVOKE)(machine, part, *arguments)
