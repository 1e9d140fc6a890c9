"""What is rounded to steps of 8 bits is computed at once.

Behind a product stand its scale, a bias, the next scale and zero points, one operator each. What rounds them
is one function from bytes to bytes, so that where two products meet neither writes real numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.quant.linear_sums import Linear, LinearSums, call_linear, numbers_along_last

# Added to a number of few digits, it leaves the nearest whole one, of two the even one, in the last bits.
_WHOLE = 1.5 * 2**23
# What follows the rounding where `integers` encodes; the first only where the zero point is not zero.
_ENCODING = ("relax.add", "relax.maximum", "relax.minimum", "relax.astype")
Limits = tuple[float, ...]  # the least and the most


@dataclass(frozen=True)
class Rounded:
    """A sum that is rounded and kept within limits."""

    sum: Linear
    least: float
    most: float


@dataclass(frozen=True)
class Limited:
    """A value that is kept within limits, as it is or rounded and moved by a zero point."""

    value: Any
    limits: Limits
    zero: float = 0.0


class FuseRequantize(Pass[Rounded]):
    """Computes what is rounded to bytes in one function, which has scales and zero points as arguments."""

    name, match = "quant.fuse_requantize", ("relax.astype",)
    dtype = "uint8"
    after = ("quant.compute_in_integers",)

    def check(self, call: Any, g: Graph) -> Rounded:
        sizes = sizes_of(call)
        found = _rounded(_encoded(call, g), sizes, LinearSums(g))
        if not found.sum.is_of_sizes(sizes):
            raise Leave("what it sums up has other sizes")
        return found

    def rewrite(self, call: Any, facts: Rounded, g: Graph) -> Any:
        limits = f"T.float32({facts.least!r})", f"T.float32({facts.most!r})"
        within = "T.min(T.max({{}}, {}), {})".format(*limits)
        text = f"T.Cast('uint8', T.reinterpret('int32', {within} + T.float32({_WHOLE!r})))"
        return call_linear("to_steps", facts.sum, text, call.ty, g)


def _encoded(call: Any, g: Graph) -> Limited:
    """What `integers` wrote for an encoding, from its last operator on."""
    chain = g.chain(call.args[0], _ENCODING)
    names = tuple(map(operator_name, chain.calls))
    if chain.source is None or operator_name(chain.source) != "relax.round":
        raise Leave("it rounds nothing")
    if names not in (_ENCODING, _ENCODING[1:]) or chain.calls[-1].ty.dtype != "int32":
        raise Leave("what it rounds is not kept within limits")
    found: list[Any] = [numbers_along_last(each.args[1]) for each in chain.calls[:-1]]
    if any(number is None or number.ndim for number in found):
        raise Leave("its zero point or limits are no single numbers")
    *zero, least, most = map(float, found)
    return Limited(chain.source.args[0], (least, most), sum(zero))


def _rounded(encoded: Limited, sizes: tuple[int, ...], sums: LinearSums) -> Rounded:
    """The sum that is rounded; limits inside become those of the steps."""
    found, limits = sums.ending_in(encoded.value, sizes), encoded.limits
    while (inner := _limited(found, sums)) is not None:
        ((_, factor),) = found.terms
        limits = tuple(
            keep(limit, float(np.rint(bound * factor + found.constant)) + encoded.zero)
            for keep, limit, bound in zip((max, min), limits, inner.limits, strict=True)
        )
        found = sums.ending_in(inner.value, sizes).times(factor) + Linear((), found.constant)
    return Rounded(found + Linear((), np.float64(encoded.zero)), *limits)


def _limited(found: Linear, sums: LinearSums) -> Limited | None:
    """The only value, if it was kept within limits that are the same everywhere."""
    if len(found.terms) != 1 or np.ndim(found.constant):
        return None
    ((value, factor),) = found.terms
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
