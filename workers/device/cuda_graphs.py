"""Whether virtual machines run parts of a model as CUDA graphs: not where each kernel is timed by itself.

A model for CUDA is compiled with calls of `vm.builtin.cuda_graph.run_or_capture`. An instrument sees one such
call in the place of all its kernels, and an event cannot be recorded while a graph is captured.
"""

from functools import cache
from typing import Any, Final

import tvm_ffi

RUN_OR_CAPTURE: Final = "vm.builtin.cuda_graph.run_or_capture"


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
