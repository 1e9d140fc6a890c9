"""Fuse the arithmetic between products of bytes, and rounding to 8 bits, in one function.

A product is followed by its scale, a bias, the next scale and zero points, as separate
operators. They reduce to a sum of values with one factor each, plus a constant. One
function from bytes to bytes (or floats) avoids storing floats between two products. It
takes the factors as arguments, so that layers with different scales are tuned as one task.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import has_known_sizes, sizes_of
from mallorn.graphc.quant.quantized_value import BYTES

ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
_INTEGERS = ("int32", "int16", *BYTES)


@dataclass(frozen=True)
class Linear:
    """Values times factors, plus a constant; factors are scalars or last-axis vectors."""

    terms: tuple[tuple[Any, Any], ...] = ()
    constant: Any = field(default_factory=lambda: np.float64(0))
    inner_values: frozenset[Any] = frozenset()  # inner results that only this sum reads

    def __add__(self, addend: "Linear") -> "Linear":
        inner_values = self.inner_values | addend.inner_values
        return Linear((*self.terms, *addend.terms), self.constant + addend.constant, inner_values)

    def times(self, factor: Any) -> "Linear":
        terms = tuple((value, value_factor * factor) for value, value_factor in self.terms)
        return Linear(terms, self.constant * factor, self.inner_values)

    def is_of_sizes(self, sizes: tuple[int, ...]) -> bool:
        """Return whether the sum has values and all of them have these sizes."""
        return bool(self.terms) and all(sizes_of(value) == sizes for value, _ in self.terms)


class LinearSums:
    """Finds sums of scaled values; stops at values with other readers or another size."""

    def __init__(self, g: Graph) -> None:
        self._g = g

    def match_sum(self, call: Any) -> Linear | None:
        """Return the sum of scaled values that a call computes; None if it is no such."""
        return self._expand(call, sizes_of(call))

    def sum_ending_in(self, value: Any, sizes: tuple[int, ...]) -> Linear:
        """Return a value as a sum of scaled values of these sizes, or else as itself."""
        constant = constant_along_last_axis(value)
        if constant is not None:
            return Linear((), constant)
        call = self.find_inner_call(value)
        linear = None if call is None else self._expand(call, sizes)
        if linear is None:
            return Linear(((value, np.float64(1)),))
        return Linear(linear.terms, linear.constant, linear.inner_values | {value})

    def find_inner_call(self, value: Any, *operators: str) -> Any | None:
        """Return the call that computes a value with one reader, if it is of `operators`."""
        return self._g.producer(value, *operators) if self._g.has_one_reader(value) else None

    def _expand(self, call: Any, sizes: tuple[int, ...]) -> Linear | None:
        name = operator_name(call)
        if call.ty.dtype != "float32":
            return None
        if name == "relax.astype" and call.args[0].ty.dtype in _INTEGERS:
            value = call.args[0]  # integers, and the zero point that was subtracted from them
            subtraction = self.find_inner_call(value, "relax.subtract")
            zero = None if subtraction is None else constant_along_last_axis(subtraction.args[1])
            if subtraction is None or zero is None or value.ty.dtype != "int32":
                return Linear(((value, np.float64(1)),))
            return Linear(((subtraction.args[0], np.float64(1)),), -zero)
        if name not in ARITHMETIC or sizes_of(call) != sizes:
            return None
        left, right = (self.sum_ending_in(value, sizes) for value in call.args)
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


def constant_along_last_axis(value: Any) -> Any | None:
    """Return a constant as a scalar or as a vector along the last axis, else None."""
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    numbers = value.value.numpy().astype("float64")
    if numbers.size == 1:
        return numbers.reshape(())
    return numbers.reshape(-1) if numbers.shape[-1] == numbers.size else None


def call_linear(name: str, sum_: Linear, template: str, result: Any, g: Graph) -> Any:
    """Return a call of a new function for the sum; `template` is TVMScript around it.

    Its arguments are the values, their factors, and the constant, as vectors along the last
    axis. TVM detects that it is element-wise and fuses it after products.
    """
    values, sizes = [value for value, _ in sum_.terms], tuple(map(int, result.shape))
    axes, numbers = [f"i{axis}" for axis in range(len(sizes))], graph_rewriting.numbers(sizes)
    place, last = ", ".join(f"v{axis}" for axis in axes), f"v{axes[-1]}"
    text = f"k{len(values)}[{last}]"
    for index in reversed(range(len(values))):
        text = f'T.Cast("float32", x{index}[{place}]) * k{index}[{last}] + {text}'
    buffers = [
        *(f'x{index}: T.Buffer(({numbers},), "{value.ty.dtype}")' for index, value in enumerate(values)),
        *(f'k{index}: T.Buffer((T.int64({sizes[-1]}),), "float32")' for index in range(len(values) + 1)),
        f'y: T.Buffer(({numbers},), "{result.dtype}")',
    ]
    function = graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(axes)} in T.grid({numbers}):
        with T.sblock("{name}"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = {template.format(text)}
""")
    vectors = *(factor for _, factor in sum_.terms), sum_.constant
    constants = [relax.const(np.broadcast_to(vector, sizes[-1]).astype("float32")) for vector in vectors]
    return g.call_function(name, function, [*values, *constants], result)


# Added to a small number, it leaves the nearest integer, ties to even, in the low bits.
_ROUNDING = 1.5 * 2**23
# Operators after the rounding in an encoding; the first is missing if the zero point is zero.
_ENCODING = ("relax.add", "relax.maximum", "relax.minimum", "relax.astype")


@dataclass(frozen=True)
class Rounded:
    """A sum of scaled values that is rounded to integers, and limits that clamp them."""

    sum: Linear
    low: float
    high: float


class FuseRequantize(Pass[Rounded]):
    """Computes scaling, sums and rounding to bytes in one function; scales are arguments."""

    name, match = "fuse_requantize", ("relax.astype",)
    dtype = "uint8"
    after = ("compute_in_integers",)

    def check(self, call: Any, g: Graph) -> Rounded:
        chain = g.chain(call.args[0], _ENCODING)
        names = tuple(map(operator_name, chain.calls))
        if chain.source is None or operator_name(chain.source) != "relax.round":
            raise Leave("no rounding computes the input")
        if names not in (_ENCODING, _ENCODING[1:]) or chain.calls[-1].ty.dtype != "int32":
            raise Leave("the rounded value is not clipped to the limits of the type")
        numbers: list[Any] = [constant_along_last_axis(link.args[1]) for link in chain.calls[:-1]]
        if any(number is None or number.ndim for number in numbers):
            raise Leave("the zero point or the limits are not single numbers")
        *zeros, low, high = map(float, numbers)
        zero = sum(zeros)

        # Clamps inside the sum become limits of the rounded values.
        sizes, sums = sizes_of(call), LinearSums(g)
        linear = sums.sum_ending_in(chain.source.args[0], sizes)
        while (clamp := _clamp(linear, sums)) is not None:
            ((_, factor),) = linear.terms
            value, inner_low, inner_high = clamp
            low = max(low, float(np.rint(inner_low * factor + linear.constant)) + zero)
            high = min(high, float(np.rint(inner_high * factor + linear.constant)) + zero)
            linear = sums.sum_ending_in(value, sizes).times(factor) + Linear((), linear.constant)
        total = linear + Linear((), np.float64(zero))
        if not total.is_of_sizes(sizes):
            raise Leave("the summands have other sizes than the sum")
        return Rounded(total, low, high)

    def rewrite(self, call: Any, facts: Rounded, g: Graph) -> Any:
        clamped = f"T.min(T.max({{}}, T.float32({facts.low!r})), T.float32({facts.high!r}))"
        text = f"T.Cast('uint8', T.reinterpret('int32', {clamped} + T.float32({_ROUNDING!r})))"
        return call_linear("to_steps", facts.sum, text, call.ty, g)


def _clamp(linear: Linear, sums: LinearSums) -> tuple[Any, float, float] | None:
    """Return input and limits of a clamp if only its result is summed, else None."""
    if len(linear.terms) != 1 or np.ndim(linear.constant):
        return None
    ((value, factor),) = linear.terms
    call = sums.find_inner_call(value, "relax.nn.relu", "relax.maximum", "relax.minimum")
    if call is None or np.ndim(factor) or not factor > 0:
        return None
    if operator_name(call) == "relax.nn.relu":
        return call.args[0], 0.0, np.inf
    bound = constant_along_last_axis(call.args[1])
    if bound is None or bound.ndim:
        return None
    if operator_name(call) == "relax.maximum":
        return call.args[0], float(bound), np.inf
    return call.args[0], -np.inf, float(bound)


_PRODUCTS = ("relax.call_tir", "relax.nn.conv2d", "relax.matmul")


class FuseDequantize(Pass[Linear]):
    """Converts integer sums to floats in one function; scales are arguments."""

    name, match = "fuse_dequantize", ARITHMETIC
    after = ("fuse_requantize",)

    def check(self, call: Any, g: Graph) -> Linear:
        linear = LinearSums(g).match_sum(call)
        # Bytes or sums of their products, and not, say, indices.
        is_quantized = linear is not None and any(
            value.ty.dtype in BYTES
            or (value.ty.dtype == "int32" and g.producer(value, *_PRODUCTS) is not None)
            for value, _ in linear.terms
        )
        if linear is None or not is_quantized:
            raise Leave("a summand is neither quantised nor a product of such data")
        if not linear.is_of_sizes(sizes_of(call)):
            raise Leave("the summands have other sizes than the sum")
        # The sum's only reader may continue it and be rewritten itself.
        reader = g.only_reader(g.variable, *ARITHMETIC)
        total = LinearSums(g).match_sum(reader) if reader is not None and has_known_sizes(reader) else None
        if total is not None and g.variable in total.inner_values and total.is_of_sizes(sizes_of(reader)):
            raise Leave("the sum is part of a larger sum, which is rewritten as a whole")
        return linear

    def rewrite(self, call: Any, facts: Linear, g: Graph) -> Any:
        return call_linear("to_reals", facts, "{}", call.ty, g)
