"""Turns the CUDA graphs of compiled models on and off.

A model for CUDA calls `vm.builtin.cuda_graph.run_or_capture`. While its kernels are timed,
it runs no CUDA graphs: the instrument would see this one call instead of the graph's
kernels, and CUDA cannot record an event while it captures a graph.
"""

from functools import cache
from typing import Any, Final

import tvm_ffi

RUN_OR_CAPTURE: Final = "vm.builtin.cuda_graph.run_or_capture"


def enable_cuda_graphs(enabled: int) -> None:
    """Turn CUDA graphs, if any, on or off for virtual machines created from now on."""
    if (capture := original_graph_function()) is not None:
        tvm_ffi.register_global_func(
            RUN_OR_CAPTURE, capture if enabled else _run_without_graph, override=True
        )


@cache
def original_graph_function() -> Any:
    """Return TVM's CUDA graph function, saved before its replacement; None without CUDA."""
    return tvm_ffi.get_global_func(RUN_OR_CAPTURE, allow_missing=True)


def _run_without_graph(machine: Any, part: Any, arguments: Any, *_cache_key: Any) -> Any:
    """Call a part of a model as an ordinary function, instead of by a CUDA graph."""
    return tvm_ffi.get_global_func("vm.builtin.invoke_closure")(machine, part, *arguments)
