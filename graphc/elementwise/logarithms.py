"""Logarithms and inverse hyperbolic functions, from an exponent and a polynomial."""

from math import log as log_of
from typing import Any, Final

from tvm import tirx

from graphc.elementwise.exponentials import LOG_TWO
from graphc.elementwise.number_function import ENDLESS, Once, magnitude, polynomial, real, split, with_sign

# log(1 + z) = z - z**2 / 2 + z**3 * _LOG(z) (Cephes); the highest power comes first.
_LOG: Final = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    *(-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    *(2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_LARGE: Final = 4096.0  # above it sqrt(x**2 + 1) equals x in float32


def log(once: Once, x: Any) -> Any:
    """Return the natural logarithm, with the limits of IEEE 754."""
    exponent, z = split(once, x)
    square = once(z * z)
    tail = square * z * polynomial(z, _LOG) + exponent * real(LOG_TWO[1])
    result = exponent * real(LOG_TWO[0]) + (z + (tail - square * real(0.5)))
    finite = tirx.Select(x < real(ENDLESS), result, x)  # passes NaN and infinity on
    positive = tirx.Select(x < real(0), real(float("nan")), finite)
    return tirx.Select(tirx.EQ(x, real(0)), real(-ENDLESS), positive)


def asinh(once: Once, x: Any) -> Any:
    """Return the inverse hyperbolic sine."""
    size = once(magnitude(x))
    square = once(size * size)
    inner = size + square / (real(1) + tirx.sqrt(square + real(1)))
    return with_sign(_log_of_sum(once, size, inner), x)


def acosh(once: Once, x: Any) -> Any:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    above = once(x - real(1))
    inner = above + tirx.sqrt(above * (above + real(2)))
    return tirx.Select(x < real(1), real(float("nan")), _log_of_sum(once, x, inner))


def atanh(once: Once, x: Any) -> Any:
    """Return the inverse hyperbolic tangent."""
    size = once(magnitude(x))
    return with_sign(real(0.5) * _log1p(once, once((size + size) / (real(1) - size))), x)


def _log_of_sum(once: Once, size: Any, inner: Any) -> Any:
    """Return log(1 + inner); for a large `size`, log(2 * size), since inner overflows."""
    large = size > real(_LARGE)
    more = tirx.Select(large, real(log_of(2)), real(0))
    return _log1p(once, once(tirx.Select(large, size - real(1), inner))) + more


def _log1p(once: Once, x: Any) -> Any:
    """Return log(1 + x), corrected for the rounding error of the sum."""
    sum_ = once(x + real(1))
    result = once(log(once, sum_))
    corrected = result + (x - (sum_ - real(1))) / sum_
    return tirx.Select(tirx.all(sum_ > real(0), sum_ < real(ENDLESS)), corrected, result)
