"""Compute exp, log, powers and others in forms that LLVM vectorises, not by library calls.

TVM's pass FastMathTransform runs later and replaces erf and tanh by polynomials.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import pi, prod, sqrt
from typing import Any, Final

from tvm import relax, topi

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import sizes_of
from mallorn.graphc.elementwise import vectorizable_math_functions as functions
from mallorn.graphc.elementwise.vectorizable_math_functions import NumberFunction, apply_elementwise

# LLVM vectorises these powers: a reciprocal and a square root.
KNOWN_POWERS: Final = (-1.0, 0.5)
_FUNCTIONS: Final[tuple[NumberFunction, ...]] = (
    *(functions.exp, functions.log, functions.sinh, functions.cosh, functions.asinh, functions.acosh),
    *(functions.atanh, functions.sin, functions.cos, functions.tan),
    *(functions.asin, functions.acos, functions.atan),
)
Form = Callable[[Any, Graph], Any]


def _number(value: float) -> Any:
    return relax.const(value, "float32")


def _fast_exp(value: Any, g: Graph) -> Any:
    """Call TVM's fast exp. It clamps its input, so use it only where that is harmless."""
    return g.call_te("fast_exp", topi.fast_exp, value)


def _sigmoid(call: Any, g: Graph) -> Any:
    return _number(1) / (_number(1) + _fast_exp(relax.op.negative(call.args[0]), g))


def _gelu_tanh(call: Any, _: Graph) -> Any:
    (x,) = call.args
    inner = _number(sqrt(2 / pi)) * x * (_number(1) + _number(0.044715) * x * x)
    return x * _number(0.5) * (_number(1) + relax.op.tanh(inner))


def _log_softmax(call: Any, g: Graph) -> Any:
    (x,), axis = call.args, int(call.attrs.axis)
    shifted = x - relax.op.max(x, axis, keepdims=True)
    total = relax.op.sum(_fast_exp(shifted, g), axis, keepdims=True)
    return shifted - g.call_te("log", partial(apply_elementwise, functions.log), total)


def _square(call: Any, _: Graph) -> Any:
    return call.args[0] * call.args[0]


def _make_tensor_function_rewrite(function: NumberFunction) -> Form:
    """Return a rewrite of calls to a tensor function that maps `function` over elements."""
    return lambda call, g: g.call_te(function.__name__, partial(apply_elementwise, function), *call.args)


_power = _make_tensor_function_rewrite(functions.power)
_SMALL_POWERS: Mapping[float, Form] = {2.0: _square, 3.0: lambda call, g: _square(call, g) * call.args[0]}
_FORMS: Mapping[str, Form] = {
    "relax.sigmoid": _sigmoid,
    "relax.nn.silu": lambda call, g: call.args[0] * _sigmoid(call, g),
    "relax.nn.gelu": lambda call, _: (
        call.args[0] * _number(0.5) * (_number(1) + relax.op.erf(call.args[0] * _number(sqrt(0.5))))
    ),
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.log_softmax": _log_softmax,
    "relax.mod": _make_tensor_function_rewrite(functions.remainder),
    **{f"relax.{function.__name__}": _make_tensor_function_rewrite(function) for function in _FUNCTIONS},
}


class VectorizeSmoothFunctions(Pass[Form]):
    """Computes exp, log, sine, powers, remainders etc. in forms that LLVM vectorises."""

    name = "vectorize_smooth_functions"
    match = ("relax.power", *_FORMS)

    def check(self, call: Any, g: Graph) -> Form:
        if operator_name(call) != "relax.power":
            return _FORMS[operator_name(call)]
        base, exponent = call.args
        grows = base.ty.ndim < exponent.ty.ndim
        if grows or not g.is_constant(exponent) or prod(sizes_of(exponent)) != 1:
            return _power
        if g.array(exponent).item() in KNOWN_POWERS:
            raise Leave("LLVM vectorises this power already")
        return _SMALL_POWERS.get(g.array(exponent).item(), _power)

    def rewrite(self, call: Any, facts: Form, g: Graph) -> Any:
        return facts(call, g)
