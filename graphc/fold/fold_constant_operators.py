"""Operators of constants, computed at once: TVM compiles a library for every one of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from graphc.core import graph_rewriting

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
    "permute_dims": lambda call, value: np.transpose(value, _integers(call.attrs.axes)),
    "reshape": lambda call, value: value.reshape(graph_rewriting.sizes_of(call)),
    "squeeze": lambda call, value: value.reshape(graph_rewriting.sizes_of(call)),
}


def constants() -> Any:
    """The pass that computes them; those that it does not know remain for FoldConstant."""
    return graph_rewriting.graph_pass("Constants", lambda _, graph: _Constants().visit_expr(graph))


@mutator
class _Constants(PyExprMutator):  # type: ignore[misc]
    def visit_var_(self, var: Any) -> Any:
        return self._known(super().visit_var_(var))

    def visit_dataflow_var_(self, var: Any) -> Any:
        return self._known(super().visit_dataflow_var_(var))

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "").removeprefix("relax.")
        if name not in _ELEMENTWISE and name not in _MOVES:
            return call
        values = [arg for arg in call.args if not isinstance(arg, relax.ShapeExpr)]
        if not all(_is_constant(value) for value in values) or not graph_rewriting.known(call):
            return call
        return relax.const(_computed(name, call, [value.value.numpy() for value in values]))

    def _known(self, var: Any) -> Any:
        """What it is bound to, if that is a constant."""
        value = self.lookup_binding(var) if isinstance(var, relax.Var) else None
        return value if isinstance(value, tvm.ir.GenericConst) else var


def _is_constant(value: Any) -> bool:
    return isinstance(value, tvm.ir.GenericConst) and value.ty.dtype == "float32"


def _computed(name: str, call: Any, values: Sequence[Any]) -> Any:
    if name in _MOVES:
        return np.ascontiguousarray(_MOVES[name](call, values[0]))
    with np.errstate(all="ignore"):
        return _ELEMENTWISE[name](*values)


def _integers(axes: Any) -> list[int] | None:
    return None if axes is None else list(map(int, axes))
