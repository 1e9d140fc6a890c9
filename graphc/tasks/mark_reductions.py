"""Reductions name a schedule rule of ours.

TVM's rules leave sums along rows, over leading axes and of windows to loops without vectors.
"""

from typing import Any

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IterVar, Mul, Var

from graphc.core import graph_rewriting

FOLD = "mallorn_fold"
VECTORS = 4  # of a register tile: enough that a sum need not wait for the one before it


def folds(lanes: int) -> Any:
    """The pass that marks them in tensor functions without products; pools name a rule that CPUs lack."""
    return graph_rewriting.function_pass("Folds", lambda function: _marked(function, lanes))


def _marked(function: Any, lanes: int) -> Any:
    blocks = graph_rewriting.collect(function.body, SBlock)
    reducing = [block for block in blocks if any(map(_is_reduction, block.iter_vars))]
    if any(_multiplies(block) for block in reducing):
        return function
    fitting = [block for block in reducing if _fills(block, lanes)]
    return graph_rewriting.marked(function, fitting, FOLD, lanes) if fitting else function


def beside(block: Any) -> int:
    """The axis along which neighbours are read, of results if there are two."""
    written = {hash(region.source) for region in block.writes}
    loads = [
        load for load in graph_rewriting.collect(block.body, TensorLoad) if hash(load.source) not in written
    ]
    names = {hash(var) for load in loads[:1] for var in graph_rewriting.collect(load.indices[-1], Var)}
    axes = [at for at, axis in enumerate(block.iter_vars) if hash(axis.var) in names]
    return axes[0] if axes else len(block.iter_vars) - 1


def _fills(block: Any, lanes: int) -> bool:
    """True if that axis can be cut in at least halves of vectors; TVM does better with prime lengths."""
    size = int(block.iter_vars[beside(block)].dom.extent)
    return any(size % factor == 0 for factor in range(max(2, lanes // 2), VECTORS * lanes + 1))


def _is_reduction(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.CommReduce)


def _multiplies(block: Any) -> bool:
    return any(
        isinstance(store.value, tvm.tirx.Add) and isinstance(store.value.b, Mul)
        for store in graph_rewriting.collect(block.body, BufferStore)
    )
