"""Operators of constants, computed before anything else asks for their numbers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from graphc.core import graph_rewriting
from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.reporting_pass import Leave

# What numpy computes to the last bit as TVM does.
_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "divide": np.divide,
    "multiply": np.multiply,
    "negative": np.negative,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
}
_MOVES: Mapping[str, Callable[[Any, Any], Any]] = {
    "expand_dims": lambda call, value: value.reshape(graph_rewriting.sizes_of(call)),
    "permute_dims": lambda call, value: np.transpose(value, graph_rewriting.permutation(call)),
    "reshape": lambda call, value: value.reshape(graph_rewriting.sizes_of(call)),
    "squeeze": lambda call, value: value.reshape(graph_rewriting.sizes_of(call)),
}


class FoldConstantOperators(Pass[list[Any]]):
    """Computes operators of constants: TVM's FoldConstant compiles a library for every one of them."""

    name = "fold.constant_operators"
    match = tuple(f"relax.{name}" for name in (*_ELEMENTWISE, *_MOVES))
    any_size = forward = True

    def check(self, call: Any, g: Graph) -> list[Any]:
        values = [arg for arg in call.args if not isinstance(arg, relax.ShapeExpr)]
        if not all(g.is_constant(value) and value.ty.dtype == "float32" for value in values):
            raise Leave("an argument is computed, or no float32")
        if not graph_rewriting.known(call):
            raise Leave("its sizes are known only when it runs")
        return [g.array(value) for value in values]

    def rewrite(self, call: Any, facts: list[Any], g: Graph) -> Any:
        return relax.const(_computed(operator_name(call).removeprefix("relax."), call, facts))


def _computed(name: str, call: Any, values: Sequence[Any]) -> Any:
    if name in _MOVES:
        return np.ascontiguousarray(_MOVES[name](call, values[0]))
    with np.errstate(all="ignore"):
        return _ELEMENTWISE[name](*values)
