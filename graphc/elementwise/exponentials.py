"""Exponential and hyperbolic functions: a power of two, and a polynomial for the rest of the exponent."""

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

# Cephes: the logarithm of two in two parts, the first of few bits, so that its products are exact.
LOG_TWO: Final = (0.693359375, -2.12194440e-4)
# exp(r) - 1 - r is r**2 times this; sinh(x) - x is x**3 times that of x**2.
_EXP: Final = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
_SINH: Final = (1 / 362880, 1 / 5040, 1 / 120, 1 / 6)
_LEAST, _MOST = -104.0, 90.0  # beyond them lie zero and infinity, also of half of it


def exp(once: Once, x: Any) -> Any:
    """The exponential function; its smallest results have as many bits as are left to them."""
    return _exp_with_exponent(once, x, 0)


def sinh(once: Once, x: Any) -> Any:
    """The hyperbolic sine: of small numbers by a polynomial, for their exponentials cancel out."""
    half = once(_exp_with_exponent(once, magnitude(x), -1))
    square = once(x * x)
    small = x + x * square * polynomial(square, _SINH)
    large = with_sign(half - real(0.25) / half, x)
    return tirx.Select(magnitude(x) < real(1), small, large)


def cosh(once: Once, x: Any) -> Any:
    """The hyperbolic cosine."""
    half = once(_exp_with_exponent(once, magnitude(x), -1))
    return half + real(0.25) / half


def _exp_with_exponent(once: Once, x: Any, more: int) -> Any:
    """The exponential function times a power of two, which may be finite where the function is not."""
    bounded = once(within(x, _LEAST, _MOST))
    whole, exponent = rounded(once, bounded * real(1 / log(2)))
    rest = once(bounded - whole * real(LOG_TWO[0]) - whole * real(LOG_TWO[1]))
    factor = rest * rest * polynomial(rest, _EXP) + rest + real(1)
    exponent = once(exponent + more)
    # Either half is an exponent that numbers have.
    first = once(tirx.shift_right(exponent, tirx.const(1, "int32")))
    return factor * power_of_two(first) * power_of_two(exponent - first)
