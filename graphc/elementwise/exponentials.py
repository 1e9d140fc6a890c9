"""Exponential and hyperbolic functions, from a power of two and a polynomial."""

from math import log
from typing import Any, Final

from tvm import tirx

from graphc.elementwise.number_function import (
    Once,
    magnitude,
    polynomial,
    power_of_two,
    real,
    rounded,
    with_sign,
    within,
)

# Cephes: log(2) in two parts. The first has few bits, so that its products are exact.
LOG_TWO: Final = (0.693359375, -2.12194440e-4)
# exp(r) = 1 + r + r**2 * _EXP(r); sinh(x) = x + x**3 * _SINH(x**2).
_EXP: Final = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
_SINH: Final = (1 / 362880, 1 / 5040, 1 / 120, 1 / 6)
_LEAST, _MOST = -104.0, 90.0  # beyond them half of exp(x) is zero or infinite, too


def exp(once: Once, x: Any) -> Any:
    """Return the exponential function; denormal results keep the bits that they can hold."""
    return _exp_with_exponent(once, x, 0)


def sinh(once: Once, x: Any) -> Any:
    """Return the hyperbolic sine; below 1 by a polynomial, since exponentials would cancel."""
    half = once(_exp_with_exponent(once, magnitude(x), -1))
    square = once(x * x)
    small = x + x * square * polynomial(square, _SINH)
    large = with_sign(half - real(0.25) / half, x)
    return tirx.Select(magnitude(x) < real(1), small, large)


def cosh(once: Once, x: Any) -> Any:
    """Return the hyperbolic cosine."""
    half = once(_exp_with_exponent(once, magnitude(x), -1))
    return half + real(0.25) / half


def _exp_with_exponent(once: Once, x: Any, more: int) -> Any:
    """Return exp(x) * 2**more, which may be finite where exp(x) is not."""
    bounded = once(within(x, _LEAST, _MOST))
    integer, exponent = rounded(once, bounded * real(1 / log(2)))
    rest = once(bounded - integer * real(LOG_TWO[0]) - integer * real(LOG_TWO[1]))
    factor = rest * rest * polynomial(rest, _EXP) + rest + real(1)
    exponent = once(exponent + more)
    # The exponent itself may be out of range; both halves are in range.
    first = once(tirx.shift_right(exponent, tirx.const(1, "int32")))
    return factor * power_of_two(first) * power_of_two(exponent - first)
