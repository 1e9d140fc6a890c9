"""Functions that only call a library, such as a sort, as a block within a root: TVM's passes look for one."""

from typing import Any

from tvm.s_tir import SBlock, SBlockRealize

from graphc.core import graph_rewriting


def calls() -> Any:
    """The pass that puts a root around them."""
    return graph_rewriting.function_pass("Calls", _wrapped)


def _wrapped(function: Any) -> Any:
    blocks = graph_rewriting.collect(function.body, SBlock)
    if not isinstance(function.body, SBlockRealize) or len(blocks) > 1:
        return function
    root = SBlock([], [], [], "root", function.body)
    return function.with_body(SBlockRealize([], True, root))
