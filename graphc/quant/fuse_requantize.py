"""Fuse everything that is rounded to 8 bits in one function.

A product is followed by its scale, a bias, the next scale and zero points, as separate
operators. One function from bytes to bytes avoids storing floats between two products.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.quant.linear_sums import Linear, LinearSums, call_linear, numbers_along_last

# Added to a small number, it leaves the nearest integer, ties to even, in the low bits.
_WHOLE = 1.5 * 2**23
# Operators after the rounding in an encoding; the first is missing if the zero point is zero.
_ENCODING = ("relax.add", "relax.maximum", "relax.minimum", "relax.astype")
Limits = tuple[float, ...]  # lower and upper limit


@dataclass(frozen=True)
class Rounded:
    """A sum that is rounded and clamped."""

    sum: Linear
    least: float
    most: float


@dataclass(frozen=True)
class Limited:
    """A value that is clamped, as it is or after rounding and adding a zero point."""

    value: Any
    limits: Limits
    zero: float = 0.0


class FuseRequantize(Pass[Rounded]):
    """Computes everything that is rounded to bytes in one function; its arguments include the scales."""

    name, match = "quant.fuse_requantize", ("relax.astype",)
    dtype = "uint8"
    after = ("quant.compute_in_integers",)

    def check(self, call: Any, g: Graph) -> Rounded:
        sizes = sizes_of(call)
        rounded = _rounded(_encoded(call, g), sizes, LinearSums(g))
        if not rounded.sum.is_of_sizes(sizes):
            raise Leave("what it sums up has other sizes")
        return rounded

    def rewrite(self, call: Any, facts: Rounded, g: Graph) -> Any:
        limits = f"T.float32({facts.least!r})", f"T.float32({facts.most!r})"
        within = "T.min(T.max({{}}, {}), {})".format(*limits)
        text = f"T.Cast('uint8', T.reinterpret('int32', {within} + T.float32({_WHOLE!r})))"
        return call_linear("to_steps", facts.sum, text, call.ty, g)


def _encoded(call: Any, g: Graph) -> Limited:
    """Return what an encoding rounds, given its last operator. Raises Leave for other calls."""
    chain = g.chain(call.args[0], _ENCODING)
    names = tuple(map(operator_name, chain.calls))
    if chain.source is None or operator_name(chain.source) != "relax.round":
        raise Leave("it rounds nothing")
    if names not in (_ENCODING, _ENCODING[1:]) or chain.calls[-1].ty.dtype != "int32":
        raise Leave("what it rounds is not kept within limits")
    numbers: list[Any] = [numbers_along_last(each.args[1]) for each in chain.calls[:-1]]
    if any(number is None or number.ndim for number in numbers):
        raise Leave("its zero point or limits are no single numbers")
    *zero, least, most = map(float, numbers)
    return Limited(chain.source.args[0], (least, most), sum(zero))


def _rounded(encoded: Limited, sizes: tuple[int, ...], sums: LinearSums) -> Rounded:
    """Return the rounded sum; clamps inside it become limits of the rounded values."""
    linear, limits = sums.ending_in(encoded.value, sizes), encoded.limits
    while (inner := _limited(linear, sums)) is not None:
        ((_, factor),) = linear.terms
        limits = tuple(
            keep(limit, float(np.rint(bound * factor + linear.constant)) + encoded.zero)
            for keep, limit, bound in zip((max, min), limits, inner.limits, strict=True)
        )
        linear = sums.ending_in(inner.value, sizes).times(factor) + Linear((), linear.constant)
    return Rounded(linear + Linear((), np.float64(encoded.zero)), *limits)


def _limited(linear: Linear, sums: LinearSums) -> Limited | None:
    """Return the clamp that computes the sum's only value, if it has scalar limits."""
    if len(linear.terms) != 1 or np.ndim(linear.constant):
        return None
    ((value, factor),) = linear.terms
    call = sums.inner(value, "relax.nn.relu", "relax.maximum", "relax.minimum")
    if call is None or np.ndim(factor) or not factor > 0:
        return None
    if operator_name(call) == "relax.nn.relu":
        return Limited(call.args[0], (0.0, np.inf))
    bound = numbers_along_last(call.args[1])
    if bound is None or bound.ndim:
        return None
    least = operator_name(call) == "relax.maximum"
    return Limited(call.args[0], (float(bound), np.inf) if least else (-np.inf, float(bound)))
