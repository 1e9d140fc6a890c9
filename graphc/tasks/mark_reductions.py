"""Sums along rows, over leading axes and of windows: TVM's rules make no vectors of them."""

from typing import Any

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IterVar, Mul, Var

from graphc.core.graph_rewriting import RULE, collect, marked
from graphc.core.reporting_pass import Leave
from graphc.core.tensor_function_pass import TensorFunctionPass

FOLD = "mallorn_fold"
VECTORS = 4  # of a register tile: enough that a sum need not wait for the one before it


class MarkReductions(TensorFunctionPass[list[Any]]):
    """Names a schedule rule of ours for reductions without products; pools name one that CPUs lack."""

    name, rules = "tasks.mark_reductions", (FOLD,)

    def check(self, function: Any) -> list[Any]:
        blocks = collect(function.body, SBlock)
        reducing = [block for block in blocks if any(map(_is_reduction, block.iter_vars))]
        if not reducing:
            raise Leave("it reduces nothing")
        stored = [store.value for block in reducing for store in collect(block.body, BufferStore)]
        if any(isinstance(value, tvm.tirx.Add) and isinstance(value.b, Mul) for value in stored):
            raise Leave("it sums products")
        fitting = [block for block in reducing if _fills(block, self.lanes)]
        if not fitting:
            raise Leave("no axis of it can be cut in vectors")
        if all(block.annotations.get(RULE) == FOLD for block in fitting):
            raise Leave("it names the rule already")
        return fitting

    def rewrite(self, function: Any, facts: list[Any]) -> Any:
        return marked(function, facts, FOLD, self.lanes)


def beside(block: Any) -> int:
    """The axis along which neighbours are read, of results if there are two."""
    written = {hash(region.source) for region in block.writes}
    loads = [load for load in collect(block.body, TensorLoad) if hash(load.source) not in written]
    names = {hash(var) for load in loads[:1] for var in collect(load.indices[-1], Var)}
    axes = [at for at, axis in enumerate(block.iter_vars) if hash(axis.var) in names]
    return axes[0] if axes else len(block.iter_vars) - 1


def _fills(block: Any, lanes: int) -> bool:
    """True if that axis can be cut in at least halves of vectors; TVM does better with prime lengths."""
    size = int(block.iter_vars[beside(block)].dom.extent)
    return any(size % factor == 0 for factor in range(max(2, lanes // 2), VECTORS * lanes + 1))


def _is_reduction(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.CommReduce)
