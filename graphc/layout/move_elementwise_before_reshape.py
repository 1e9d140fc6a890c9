"""Element-wise operators before the reshape of what a tensor function computes, so that they fuse with it."""

from math import prod
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from graphc.core import graph_rewriting

RESHAPE, FUNCTION = "relax.reshape", "relax.call_tir"
_UNARY = {"clip", "exp", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu", "sigmoid", "tanh"}
_BINARY = {"add", "divide", "maximum", "minimum", "multiply", "subtract"}
_ELEMENTWISE = {f"relax.{name}" for name in _UNARY | _BINARY}


def views() -> Any:
    """The pass that moves them, if their other operand is a number, a vector of the last axis, or alike."""
    return graph_rewriting.graph_pass("Views", lambda _, graph: _Views().visit_expr(graph))


@mutator
class _Views(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        view: Any = self._value(call.args[0]) if _is(call, *_ELEMENTWISE) else None
        moves = _is(view, RESHAPE) and graph_rewriting.known(view)
        if not moves or not _channels(view) or not self._ours(view.args[0]):
            return call
        operands = [self._operand(operand, call, view) for operand in call.args[1:]]
        if None in operands:
            return call
        moved = self.builder_.emit(relax.Call(call.op, [view.args[0], *operands], call.attrs))
        return relax.op.reshape(moved, call.ty.shape)

    def _value(self, var: Any) -> Any:
        return self.lookup_binding(var) if isinstance(var, relax.Var) else None

    def _operand(self, operand: Any, call: Any, view: Any) -> Any | None:
        """The other operand before the reshape: a constant, or what is reshaped alike; None for others."""
        other = self._value(operand)
        if (
            _is(other, RESHAPE)
            and graph_rewriting.known(other)
            and _shape(other.args[0]) == _shape(view.args[0])
            and _shape(other) == _shape(view)
        ):
            return other.args[0]
        return _vector(operand, _channels(view))

    def _ours(self, var: Any) -> bool:
        """True for what a tensor function computes, and what was moved behind one."""
        value: Any = self._value(var)
        if _is(value, FUNCTION):
            return True
        return _is(value, *_ELEMENTWISE) and self._ours(value.args[0])


def _is(value: Any, *operators: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in operators


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(graph_rewriting.sizes_of(value))


def _channels(view: Any) -> tuple[int, ...]:
    """The axes that become the last one: itself, or groups of it; none where others are in it."""
    sizes, last = _shape(view.args[0]), _shape(view)[-1]
    return next((sizes[-count:] for count in (1, 2) if prod(sizes[-count:]) == last), ())


def _vector(operand: Any, channels: tuple[int, ...]) -> Any | None:
    """A constant as a number or by channel; None for others."""
    if not isinstance(operand, tvm.ir.GenericConst):
        return None
    values = operand.value.numpy()
    if values.ndim == 0:
        return operand
    if values.size != values.shape[-1] or values.size not in (1, prod(channels)):
        return None
    return relax.const(values.reshape(channels if values.size > 1 else (1,)))
