"""Weights that are laid out anew, without a library for each: TVM's FoldConstant compiles one a call."""

from math import prod
from typing import Any, Final

from tvm import relax

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.fold.copied_arrays import copied

# Numbers that NumPy moves while a copying function is compiled; more are left to compiled code.
MOST_NUMBERS: Final = 1 << 21


class FoldConstantCopies(Pass[list[Any]]):
    """Computes calls of tensor functions that copy constants from one order into another."""

    name, match = "fold.constant_copies", ("relax.call_tir",)
    dtype, any_size = "", True

    def check(self, call: Any, g: Graph) -> list[Any]:
        given = list(call.args[1].fields)
        if not given or not all(map(g.is_constant, given)):
            raise Leave("an argument is computed")
        if sum(prod(sizes_of(each)) for each in given) > MOST_NUMBERS:
            raise Leave("compiled code moves so many numbers faster")
        return copied(g.tensor_function(call), [g.array(each) for each in given])

    def rewrite(self, call: Any, facts: list[Any], g: Graph) -> Any:
        constants = [relax.const(array) for array in facts]
        return relax.Tuple(constants) if isinstance(call.ty, relax.TupleType) else constants[0]
