"""Arithmetic of a graph, read backwards as a sum of values with factors, and tensor functions of such sums.

Scales and zero points behind a product are one factor and one summand for each number that is read. They are
arguments: a convolution and what follows it is the same task in layers whose scales differ.
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
    """Values, each with its factors, and what is added: numbers, or vectors along the last axis."""

    terms: tuple[tuple[Any, Any], ...] = ()
    constant: Any = field(default_factory=lambda: np.float64(0))
    inside: frozenset[Any] = frozenset()  # what it is made of, and nothing else reads

    def __add__(self, other: "Linear") -> "Linear":
        inside = self.inside | other.inside
        return Linear((*self.terms, *other.terms), self.constant + other.constant, inside)

    def times(self, factor: Any) -> "Linear":
        terms = tuple((value, by * factor) for value, by in self.terms)
        return Linear(terms, self.constant * factor, self.inside)

    def is_of_sizes(self, sizes: tuple[int, ...]) -> bool:
        """True if there are values, and all have these sizes."""
        return bool(self.terms) and all(sizes_of(value) == sizes for value, _ in self.terms)


class LinearSums:
    """The sums of a graph; each ends where it meets what others read, too, or what has other sizes."""

    def __init__(self, g: Graph) -> None:
        self._g = g

    def of(self, call: Any) -> Linear | None:
        """What a call of arithmetic sums up; none where it multiplies two computed values."""
        return self._opened(call, sizes_of(call))

    def ending_in(self, value: Any, sizes: tuple[int, ...]) -> Linear:
        """A value as a sum of a result's sizes; of itself, if it cannot be opened."""
        known = numbers_along_last(value)
        if known is not None:
            return Linear((), known)
        call = self.inner(value)
        found = None if call is None else self._opened(call, sizes)
        if found is None:
            return Linear(((value, np.float64(1)),))
        return Linear(found.terms, found.constant, found.inside | {value})

    def inner(self, value: Any, *operators: str) -> Any | None:
        """The call of such an operator that a value is bound to, if one call alone reads it."""
        return self._g.producer(value, *operators) if self._g.read_once(value) else None

    def _opened(self, call: Any, sizes: tuple[int, ...]) -> Linear | None:
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
        # A product or quotient is linear if one of the factors, or the divisor, is constant.
        divides = name == "relax.divide"
        if right.terms and (left.terms or divides):
            return None
        if divides:
            return left.times(1 / right.constant)
        by, of = (left, right) if right.terms else (right, left)
        return of.times(by.constant)

    def _whole(self, value: Any) -> Linear:
        """Integers, and what was taken from them."""
        less = self.inner(value, "relax.subtract")
        by = None if less is None else numbers_along_last(less.args[1])
        if less is None or by is None or value.ty.dtype != "int32":
            return Linear(((value, np.float64(1)),))
        return Linear(((less.args[0], np.float64(1)),), -by)


def numbers_along_last(value: Any) -> Any | None:
    """A constant of one number, or one a place along the last axis."""
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    found = value.value.numpy().astype("float64")
    if found.size == 1:
        return found.reshape(())
    return found.reshape(-1) if found.shape[-1] == found.size else None


def call_linear(name: str, sum_: Linear, whole: str, result: Any, g: Graph) -> Any:
    """The call of a function that sums values up; what `whole` makes of each sum is the result."""
    values, sizes = [value for value, _ in sum_.terms], tuple(map(int, result.shape))
    function = _function(name, values, whole, sizes, str(result.dtype))
    # The values' factors, then what is added, each a vector along the last axis: arguments, not numbers.
    rows = *(by for _, by in sum_.terms), sum_.constant
    factors = [relax.const(np.broadcast_to(row, sizes[-1]).astype("float32")) for row in rows]
    return g.call_function(name, function, [*values, *factors], result)


def _function(name: str, values: list[Any], whole: str, sizes: tuple[int, ...], dtype: str) -> Any:
    """TVM finds by itself that this is element-wise, and fuses it behind products."""
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
            y[{place}] = {whole.format(text)}
""")
