"""Read arithmetic as a sum of values with factors, and build tensor functions of such sums.

The scales and zero points after a product reduce to one factor and one summand per value. The
functions take them as arguments, so that layers with different scales share a task.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from graphc.core import graph_rewriting
from graphc.core.graph import Graph, operator_name
from graphc.core.graph_rewriting import sizes_of
from graphc.quant.quantized_value import BYTES

ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
_INTEGERS = ("int32", "int16", *BYTES)


@dataclass(frozen=True)
class Linear:
    """Values times factors, plus a constant: scalars or vectors along the last axis."""

    terms: tuple[tuple[Any, Any], ...] = ()
    constant: Any = field(default_factory=lambda: np.float64(0))
    inside: frozenset[Any] = frozenset()  # inner results that only this sum reads

    def __add__(self, other: "Linear") -> "Linear":
        inside = self.inside | other.inside
        return Linear((*self.terms, *other.terms), self.constant + other.constant, inside)

    def times(self, factor: Any) -> "Linear":
        terms = tuple((value, value_factor * factor) for value, value_factor in self.terms)
        return Linear(terms, self.constant * factor, self.inside)

    def is_of_sizes(self, sizes: tuple[int, ...]) -> bool:
        """Return whether the sum has values and all of them have these sizes."""
        return bool(self.terms) and all(sizes_of(value) == sizes for value, _ in self.terms)


class LinearSums:
    """Finds the sums in a graph; each stops at values with other readers or other sizes."""

    def __init__(self, g: Graph) -> None:
        self._g = g

    def of(self, call: Any) -> Linear | None:
        """Return the sum that a call computes; None if it multiplies two computed values."""
        return self._expand(call, sizes_of(call))

    def ending_in(self, value: Any, sizes: tuple[int, ...]) -> Linear:
        """Return a value as a sum of values of these sizes, or else of itself."""
        constant = numbers_along_last(value)
        if constant is not None:
            return Linear((), constant)
        call = self.inner(value)
        linear = None if call is None else self._expand(call, sizes)
        if linear is None:
            return Linear(((value, np.float64(1)),))
        return Linear(linear.terms, linear.constant, linear.inside | {value})

    def inner(self, value: Any, *operators: str) -> Any | None:
        """Return the call of these operators that computes a value with one reader."""
        return self._g.producer(value, *operators) if self._g.read_once(value) else None

    def _expand(self, call: Any, sizes: tuple[int, ...]) -> Linear | None:
        name = operator_name(call)
        if call.ty.dtype != "float32":
            return None
        if name == "relax.astype" and call.args[0].ty.dtype in _INTEGERS:
            return self._whole(call.args[0])
        if name not in ARITHMETIC or sizes_of(call) != sizes:
            return None
        left, right = (self.ending_in(value, sizes) for value in call.args)
        if name == "relax.add":
            return left + right
        if name == "relax.subtract":
            return left + right.times(-1.0)
        # A product or quotient is linear if one factor, or the divisor, is constant.
        divides = name == "relax.divide"
        if right.terms and (left.terms or divides):
            return None
        if divides:
            return left.times(1 / right.constant)
        constant_side, linear_side = (left, right) if right.terms else (right, left)
        return linear_side.times(constant_side.constant)

    def _whole(self, value: Any) -> Linear:
        """Return integers, and the zero point that was subtracted from them, as a sum."""
        subtraction = self.inner(value, "relax.subtract")
        zero = None if subtraction is None else numbers_along_last(subtraction.args[1])
        if subtraction is None or zero is None or value.ty.dtype != "int32":
            return Linear(((value, np.float64(1)),))
        return Linear(((subtraction.args[0], np.float64(1)),), -zero)


def numbers_along_last(value: Any) -> Any | None:
    """Return a constant as a scalar or as a vector along the last axis, else None."""
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    numbers = value.value.numpy().astype("float64")
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape(-1) if numbers.shape[-1] == numbers.size else None


def call_linear(name: str, sum_: Linear, whole: str, result: Any, g: Graph) -> Any:
    """Return the call of a function that computes a sum; `whole` formats it to the result."""
    values, sizes = [value for value, _ in sum_.terms], tuple(map(int, result.shape))
    function = _function(name, values, whole, sizes, str(result.dtype))
    # Factors, then the constant, are arguments: vectors along the last axis.
    rows = *(by for _, by in sum_.terms), sum_.constant
    factors = [relax.const(np.broadcast_to(row, sizes[-1]).astype("float32")) for row in rows]
    return g.call_function(name, function, [*values, *factors], result)


def _function(name: str, values: list[Any], template: str, sizes: tuple[int, ...], dtype: str) -> Any:
    """Build the function; TVM detects that it is element-wise and fuses it after products."""
    axes, numbers = [f"i{axis}" for axis in range(len(sizes))], graph_rewriting.numbers(sizes)
    place, last = ", ".join(f"v{axis}" for axis in axes), f"v{axes[-1]}"
    text = f"k{len(values)}[{last}]"
    for at in reversed(range(len(values))):
        text = f'T.Cast("float32", x{at}[{place}]) * k{at}[{last}] + {text}'
    buffers = [
        *(f'x{at}: T.Buffer(({numbers},), "{each.ty.dtype}")' for at, each in enumerate(values)),
        *(f'k{at}: T.Buffer((T.int64({sizes[-1]}),), "float32")' for at in range(len(values) + 1)),
        f'y: T.Buffer(({numbers},), "{dtype}")',
    ]
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(axes)} in T.grid({numbers}):
        with T.sblock("{name}"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = {template.format(text)}
""")
