"""Powers and remainders of float32 numbers in float64, since exponents amplify errors.

TVM inlines names whenever it simplifies, so each value is read as few times as possible.
"""

from math import factorial, log
from typing import Any, Final

from tvm import tirx

from graphc.elementwise.number_function import (
    ENDLESS,
    Once,
    bits,
    magnitude,
    of_bits,
    polynomial,
    real,
    with_sign,
)

# log2(1 + z) is t = z / (z + 2) times _LOG2(t**2); 2**f is _EXP2(f) for |f| <= 0.5.
_LOG2: Final = tuple(2 / log(2) / odd for odd in range(13, 0, -2))
_EXP2: Final = tuple(log(2) ** power / factorial(power) for power in range(8, -1, -1))
_LEAST, _MOST = -160.0, 130.0  # beyond these exponents results are zero or infinite
_MANTISSA, _BIAS = 52, 1023  # of float64
_QUOTIENT_BITS: Final = 28  # of the quotient per step of a remainder: products are exact
_EXPONENTS: Final = 278  # largest difference between the exponents of two float32 numbers


def power(once: Once, base: Any, exponent: Any) -> Any:
    """Return base**exponent, with the limits of IEEE 754."""
    is_whole = tirx.EQ(tirx.trunc(exponent), exponent)
    half = once(exponent * real(0.5))
    is_nan = tirx.any(
        tirx.all(base < real(0), base > real(-ENDLESS), tirx.Not(is_whole)),  # such powers are undefined
        tirx.all(tirx.isnan(base), tirx.NE(exponent, real(0))),
        tirx.all(tirx.isnan(exponent), tirx.NE(base, real(1))),
    )
    is_one = tirx.any(tirx.EQ(exponent, real(0)), tirx.EQ(magnitude(base), real(1)))
    product = tirx.Select(is_one, _double(0), _wide(exponent) * _log2(once, once(magnitude(base))))
    result = _exp2(once, once(tirx.Select(is_nan, _double(float("nan")), product)))
    odd = tirx.all(is_whole, tirx.NE(tirx.trunc(half), half))
    sign = tirx.Select(odd, bits(base), tirx.const(0, "int32")) & tirx.const(-(2**31), "int32")
    return of_bits(bits(tirx.Cast("float32", result)) ^ sign)


def _log2(once: Once, size: Any) -> Any:
    word = once(tirx.reinterpret("int64", _wide(size)))
    root = tirx.reinterpret("int64", _double(0.5**0.5))
    exponent = once(tirx.shift_right(word - root, _long(_MANTISSA)))
    part = word - tirx.shift_left(exponent, _long(_MANTISSA))
    z = once(tirx.reinterpret("float64", part) - _double(1))
    t = once(z / (z + _double(2)))
    result = tirx.Cast("float64", tirx.Cast("int32", exponent)) + t * polynomial(once(t * t), _LOG2)
    finite = tirx.Select(size < real(ENDLESS), result, _double(ENDLESS))
    return tirx.Select(size > real(0), finite, _double(-ENDLESS))


def _exp2(once: Once, value: Any) -> Any:
    # In this order of min and max, NaN stays NaN.
    bounded = once(tirx.max(_double(_LEAST), tirx.min(_double(_MOST), value)))
    nearest = once(tirx.nearbyint(bounded))
    exponent = tirx.reinterpret("int64", nearest + _double(1.5 * 2**_MANTISSA)) + _long(_BIAS)
    scale = tirx.reinterpret("float64", tirx.shift_left(exponent, _long(_MANTISSA)))
    return polynomial(once(bounded - nearest), _EXP2) * scale


def remainder(once: Once, dividend: Any, divisor: Any) -> Any:
    """Return the exact remainder of the division, with the sign of the dividend."""
    rest, unit = once(_wide(magnitude(dividend))), once(_wide(magnitude(divisor)))
    inverse = once(_double(1) / unit)
    for step in range(_EXPONENTS // _QUOTIENT_BITS, -1, -1):
        scale = 2.0 ** (step * _QUOTIENT_BITS)
        times = tirx.nearbyint(rest * (inverse * _double(1 / scale)))
        rest = once(rest - times * (unit * _double(scale)))
    left = tirx.Cast("float32", tirx.Select(rest < _double(0), rest + unit, rest))
    is_valid = tirx.all(magnitude(divisor) > real(0), magnitude(dividend) < real(ENDLESS))
    result = tirx.Select(is_valid, with_sign(left, dividend), real(float("nan")))
    fewer = tirx.Select(magnitude(dividend) < magnitude(divisor), dividend, result)
    return tirx.Select(tirx.isnan(divisor), divisor, fewer)


def _wide(value: Any) -> Any:
    return tirx.Cast("float64", value)


def _double(value: float) -> Any:
    return tirx.const(value, "float64")


def _long(value: int) -> Any:
    return tirx.const(value, "int64")
