"""Smooth functions in forms that LLVM makes vectors of; otherwise it calls a library for each number.

What is written with exp, erf or tanh here becomes polynomials in FastMathTransform, which follows.
"""

from collections.abc import Callable
from math import log, pi, prod, sqrt
from typing import Any, Final

from tvm import relax, te, tirx

from graphc.core import graph_rewriting
from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.reporting_pass import Leave

MANTISSA_BITS: Final = 23
BIAS: Final = 127
# log(1 + z) - z + z**2 / 2 is z**3 times a polynomial (Cephes); the highest power first.
LOG: Final = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    *(-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    *(2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
SMALL_POWERS: Final = (2.0, 3.0)


Form = Callable[[Any, Graph], Any]


class VectorizeSmoothFunctions(Pass[Form]):
    """Writes sigmoid, SiLU, GELU, log, log-softmax and small powers in operators that LLVM vectorises."""

    name = "elementwise.vectorize_smooth"
    match = (
        "relax.sigmoid",
        "relax.nn.silu",
        "relax.nn.gelu",
        "relax.nn.gelu_tanh",
        "relax.nn.log_softmax",
        "relax.log",
        "relax.power",
    )

    def check(self, call: Any, g: Graph) -> Form:
        if operator_name(call) != "relax.power":
            return _FORMS[operator_name(call)]
        base, exponent = call.args
        if not g.is_constant(exponent) or prod(graph_rewriting.sizes_of(exponent)) != 1:
            raise Leave("its exponent is computed, or many numbers")
        if g.array(exponent).item() not in SMALL_POWERS or base.ty.ndim < exponent.ty.ndim:
            raise Leave("it is neither a square nor a cube")
        return _square if g.array(exponent).item() == SMALL_POWERS[0] else _cube

    def rewrite(self, call: Any, facts: Form, g: Graph) -> Any:
        return facts(call, g)


def _number(value: float) -> Any:
    return relax.const(value, "float32")


def _sigmoid(call: Any, _: Graph) -> Any:
    return _number(1) / (_number(1) + relax.op.exp(relax.op.negative(call.args[0])))


def _silu(call: Any, g: Graph) -> Any:
    return call.args[0] * _sigmoid(call, g)


def _gelu(call: Any, _: Graph) -> Any:
    (x,) = call.args
    return x * _number(0.5) * (_number(1) + relax.op.erf(x * _number(sqrt(0.5))))


def _gelu_tanh(call: Any, _: Graph) -> Any:
    (x,) = call.args
    inner = _number(sqrt(2 / pi)) * x * (_number(1) + _number(0.044715) * x * x)
    return x * _number(0.5) * (_number(1) + relax.op.tanh(inner))


def _log_softmax(call: Any, g: Graph) -> Any:
    (x,), axis = call.args, int(call.attrs.axis)
    below = x - relax.op.max(x, axis, keepdims=True)
    return below - _log_of_all(relax.op.sum(relax.op.exp(below), axis, keepdims=True), g)


def _square(call: Any, _: Graph) -> Any:
    return call.args[0] * call.args[0]


def _cube(call: Any, g: Graph) -> Any:
    return _square(call, g) * call.args[0]


def _fast_log(call: Any, g: Graph) -> Any:
    return _log_of_all(call.args[0], g)


def _log_of_all(value: Any, g: Graph) -> Any:
    return g.call_te("fast_log", _log, value)


_FORMS: dict[str, Form] = {
    "relax.sigmoid": _sigmoid,
    "relax.nn.silu": _silu,
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.log_softmax": _log_softmax,
    "relax.log": _fast_log,
}


def _log(x: Any) -> Any:
    """By the exponent of a number and a polynomial of its mantissa; the limits as in IEEE 754."""

    def of(*place: Any) -> Any:
        return _log_of(x(*place))

    return te.compute(x.shape, of, name="fast_log")


def _log_of(value: Any) -> Any:
    least = tirx.const(2.0**-126, "float32")  # smaller numbers have no exponent of their own
    bits = tirx.reinterpret("int32", tirx.max(value, least))
    above = bits - tirx.reinterpret("int32", tirx.const(sqrt(0.5), "float32"))
    exponent = tirx.shift_right(above, tirx.const(MANTISSA_BITS, "int32"))
    mantissa = bits - tirx.shift_left(exponent, tirx.const(MANTISSA_BITS, "int32"))
    z = tirx.reinterpret("float32", mantissa) - tirx.const(1, "float32")
    tail = tirx.const(LOG[0], "float32")
    for factor in LOG[1:]:
        tail = tail * z + tirx.const(factor, "float32")
    found = z + z * z * (tail * z - tirx.const(0.5, "float32"))
    return _with_limits(value, found + tirx.Cast("float32", exponent) * tirx.const(log(2), "float32"))


def _with_limits(value: Any, found: Any) -> Any:
    endless = tirx.const(float("inf"), "float32")
    finite = tirx.Select(value < endless, found, value)  # also what is no number
    negative = tirx.Select(value < tirx.const(0, "float32"), tirx.const(float("nan"), "float32"), finite)
    return tirx.Select(tirx.EQ(value, tirx.const(0, "float32")), -endless, negative)
