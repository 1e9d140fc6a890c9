"""Element-wise functions as branch-free expressions that LLVM can vectorise.

`power` and `remainder` compute in float64, since exponents amplify errors. TVM inlines
named values whenever it simplifies, so these two read each value as few times as possible.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from tvm import te, tirx, topi

MANTISSA_BITS: Final = 23
BIAS: Final = 127
ENDLESS: Final = float("inf")
# Adding it to a number rounds that number: the sum has no bits for fractions.
_ROUNDING: Final = 1.5 * 2**MANTISSA_BITS
# Named values are stored as reinterpreted bits, which TVM does not analyse. It would inline
# integers wherever a name is read, and its analysis of floats doubles with every choice.
_KINDS: Final = {32: ("int32", "float32"), 64: ("int64", "float64")}
Bind = Callable[[Any], Any]  # names a value that is read several times, to compute it once
NumberFunction = Callable[..., Any]  # takes a Bind and numbers


class NamedValues:
    """Intermediate values of an expression, bound to variables to be computed once."""

    def __init__(self) -> None:
        self._values: list[tuple[Any, Any]] = []

    def bind(self, value: Any) -> Any:
        own = str(value.ty.dtype)
        as_integer, as_real = _KINDS[int(own[-2:])]
        name = tirx.Var("value", as_real)
        integer = value if own.startswith(("int", "uint")) else tirx.reinterpret(as_integer, value)
        self._values.append((name, tirx.reinterpret(as_real, integer)))
        return name if own == as_real else tirx.reinterpret(own, name)

    def wrap_in_lets(self, result: Any) -> Any:
        for name, value in reversed(self._values):
            result = tirx.Let(name, value, result)
        return result


def apply_elementwise(function: NumberFunction, *tensors: Any) -> Any:
    """Return a TE tensor that applies the function to each element, with broadcasting."""

    def compute(*indices: Any) -> Any:
        values, numbers = NamedValues(), []
        for tensor in tensors:
            axes = zip(tensor.shape, indices[len(indices) - len(tensor.shape) :], strict=True)
            numbers.append(tensor(*(0 if int(size) == 1 else index for size, index in axes)))
        return values.wrap_in_lets(function(values.bind, *map(values.bind, numbers)))

    return te.compute(reduce(topi.add, tensors).shape, compute, name=function.__name__)


def float32_const(value: float) -> Any:
    return tirx.const(value, "float32")


def float_bits(value: Any) -> Any:
    """Return the bits of a float32 number (sign, exponent, mantissa) as an int32."""
    return tirx.reinterpret("int32", value)


def float_from_bits(value: Any) -> Any:
    return tirx.reinterpret("float32", value)


def magnitude(value: Any) -> Any:
    return float_from_bits(float_bits(value) & 0x7FFFFFFF)


def with_sign(value: Any, signed: Any) -> Any:
    """Give a non-negative number the sign of the number `signed`."""
    return float_from_bits(float_bits(value) | (float_bits(signed) & tirx.const(-(2**31), "int32")))


def clamp(value: Any, low: float, high: float) -> Any:
    """Limit the number to [low, high]; NaN stays NaN."""
    return tirx.max(float32_const(low), tirx.min(float32_const(high), value))


def polynomial(value: Any, factors: Iterable[float]) -> Any:
    """Evaluate a polynomial; the coefficients `factors` begin with the highest power."""
    first, *lower_factors = (tirx.const(factor, str(value.ty.dtype)) for factor in factors)
    for factor in lower_factors:
        first = first * value + factor
    return first


def round_to_integer(bind: Bind, value: Any) -> tuple[Any, Any]:
    """Return the nearest whole number, as a float and as an integer."""
    sum_ = bind(value + float32_const(_ROUNDING))
    return bind(sum_ - float32_const(_ROUNDING)), bind(
        float_bits(sum_) - float_bits(float32_const(_ROUNDING))
    )


def power_of_two(exponent: Any) -> Any:
    """Return 2**exponent for an integer exponent between -126 and 127."""
    return float_from_bits(tirx.shift_left(exponent + BIAS, tirx.const(MANTISSA_BITS, "int32")))


def split_exponent_and_mantissa(bind: Bind, value: Any) -> tuple[Any, Any]:
    """Return (exponent, mantissa - 1) of a positive number, with the mantissa near 1."""
    small = value < float32_const(2.0**-126)  # denormal numbers have no exponent of their own
    pattern = bind(float_bits(tirx.Select(small, value * float32_const(2.0**MANTISSA_BITS), value)))
    exponent = bind(
        tirx.shift_right(pattern - float_bits(float32_const(0.5**0.5)), tirx.const(MANTISSA_BITS, "int32"))
    )
    mantissa = float_from_bits(pattern - tirx.shift_left(exponent, tirx.const(MANTISSA_BITS, "int32")))
    scale = tirx.Cast("float32", exponent) - tirx.Select(
        small, float32_const(MANTISSA_BITS), float32_const(0)
    )
    return bind(scale), bind(mantissa - float32_const(1))


# Cephes: log(2) in two parts. The first has few bits, so that its products are exact.
LOG_TWO: Final = (0.693359375, -2.12194440e-4)
# exp(r) = 1 + r + r**2 * _EXP(r); sinh(x) = x + x**3 * _SINH(x**2).
_EXP: Final = (
    *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
    *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
_SINH: Final = (1 / 362880, 1 / 5040, 1 / 120, 1 / 6)
_LEAST, _MOST = -104.0, 90.0  # beyond them half of exp(x) is zero or infinite, too


def exp(bind: Bind, x: Any) -> Any:
    """Return exp(x); very small results are denormal numbers instead of zero."""
    return _exp_with_exponent(bind, x, 0)


def sinh(bind: Bind, x: Any) -> Any:
    """Return sinh(x); below 1 by a polynomial, as a difference of exponentials cancels."""
    half = bind(_exp_with_exponent(bind, magnitude(x), -1))
    square = bind(x * x)
    small = x + x * square * polynomial(square, _SINH)
    large = with_sign(half - float32_const(0.25) / half, x)
    return tirx.Select(magnitude(x) < float32_const(1), small, large)


def cosh(bind: Bind, x: Any) -> Any:
    half = bind(_exp_with_exponent(bind, magnitude(x), -1))
    return half + float32_const(0.25) / half


def _exp_with_exponent(bind: Bind, x: Any, extra_exponent: int) -> Any:
    """Return exp(x) * 2**extra_exponent, which may be finite where exp(x) is not."""
    bounded = bind(clamp(x, _LEAST, _MOST))
    integer, exponent = round_to_integer(bind, bounded * float32_const(1 / math.log(2)))
    fraction = bind(bounded - integer * float32_const(LOG_TWO[0]) - integer * float32_const(LOG_TWO[1]))
    factor = fraction * fraction * polynomial(fraction, _EXP) + fraction + float32_const(1)
    exponent = bind(exponent + extra_exponent)
    # The exponent itself may be out of range; both halves are in range.
    first = bind(tirx.shift_right(exponent, tirx.const(1, "int32")))
    return factor * power_of_two(first) * power_of_two(exponent - first)


# log(1 + z) = z - z**2 / 2 + z**3 * _LOG(z) (Cephes); the highest power comes first.
_LOG: Final = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
    *(-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
    *(2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
_LARGE: Final = 4096.0  # above it sqrt(x**2 + 1) equals x in float32


def log(bind: Bind, x: Any) -> Any:
    """Return the natural logarithm: NaN for negative numbers, minus infinity for zero."""
    exponent, z = split_exponent_and_mantissa(bind, x)
    square = bind(z * z)
    tail = square * z * polynomial(z, _LOG) + exponent * float32_const(LOG_TWO[1])
    result = exponent * float32_const(LOG_TWO[0]) + (z + (tail - square * float32_const(0.5)))
    finite = tirx.Select(x < float32_const(ENDLESS), result, x)  # passes NaN and infinity on
    positive = tirx.Select(x < float32_const(0), float32_const(float("nan")), finite)
    return tirx.Select(tirx.EQ(x, float32_const(0)), float32_const(-ENDLESS), positive)


def asinh(bind: Bind, x: Any) -> Any:
    size = bind(magnitude(x))
    square = bind(size * size)
    inner = size + square / (float32_const(1) + tirx.sqrt(square + float32_const(1)))
    return with_sign(_log_of_sum(bind, size, inner), x)


def acosh(bind: Bind, x: Any) -> Any:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    excess = bind(x - float32_const(1))
    inner = excess + tirx.sqrt(excess * (excess + float32_const(2)))
    return tirx.Select(x < float32_const(1), float32_const(float("nan")), _log_of_sum(bind, x, inner))


def atanh(bind: Bind, x: Any) -> Any:
    size = bind(magnitude(x))
    return with_sign(float32_const(0.5) * _log1p(bind, bind((size + size) / (float32_const(1) - size))), x)


def _log_of_sum(bind: Bind, size: Any, inner: Any) -> Any:
    """Return log(1 + inner), or log(2 * size) if `size` is so large that inner overflows."""
    large = size > float32_const(_LARGE)
    offset = tirx.Select(large, float32_const(math.log(2)), float32_const(0))
    return _log1p(bind, bind(tirx.Select(large, size - float32_const(1), inner))) + offset


def _log1p(bind: Bind, x: Any) -> Any:
    """Return log(1 + x); the rounding error of the sum is corrected."""
    sum_ = bind(x + float32_const(1))
    result = bind(log(bind, sum_))
    corrected = result + (x - (sum_ - float32_const(1))) / sum_
    return tirx.Select(tirx.all(sum_ > float32_const(0), sum_ < float32_const(ENDLESS)), corrected, result)


# log2(1 + z) is t = z / (z + 2) times _LOG2(t**2); 2**f is _EXP2(f) for |f| <= 0.5.
_LOG2: Final = tuple(2 / math.log(2) / odd for odd in range(13, 0, -2))
_EXP2: Final = tuple(math.log(2) ** power / math.factorial(power) for power in range(8, -1, -1))
_LEAST_POWER, _MOST_POWER = -160.0, 130.0  # beyond these exponents results are zero or infinite
_MANTISSA, _BIAS = 52, 1023  # of float64
_QUOTIENT_BITS: Final = 28  # of the quotient per step of a remainder: products are exact
_EXPONENTS: Final = 278  # largest difference between the exponents of two float32 numbers


def power(bind: Bind, base: Any, exponent: Any) -> Any:
    """Return base**exponent; zero, infinity and NaN are treated as in IEEE 754."""
    is_whole = tirx.EQ(tirx.trunc(exponent), exponent)
    half = bind(exponent * float32_const(0.5))
    is_nan = tirx.any(
        tirx.all(
            base < float32_const(0), base > float32_const(-ENDLESS), tirx.Not(is_whole)
        ),  # such powers are undefined
        tirx.all(tirx.isnan(base), tirx.NE(exponent, float32_const(0))),
        tirx.all(tirx.isnan(exponent), tirx.NE(base, float32_const(1))),
    )
    is_one = tirx.any(tirx.EQ(exponent, float32_const(0)), tirx.EQ(magnitude(base), float32_const(1)))

    # log2 of the base's magnitude, from its exponent and a polynomial of its mantissa.
    size = bind(magnitude(base))
    word = bind(tirx.reinterpret("int64", _wide(size)))
    root = tirx.reinterpret("int64", double(0.5**0.5))
    base_exponent = bind(tirx.shift_right(word - root, _long(_MANTISSA)))
    mantissa = word - tirx.shift_left(base_exponent, _long(_MANTISSA))
    z = bind(tirx.reinterpret("float64", mantissa) - double(1))
    t = bind(z / (z + double(2)))
    logarithm = tirx.Cast("float64", tirx.Cast("int32", base_exponent))
    logarithm = logarithm + t * polynomial(bind(t * t), _LOG2)
    finite = tirx.Select(size < float32_const(ENDLESS), logarithm, double(ENDLESS))
    logarithm = tirx.Select(size > float32_const(0), finite, double(-ENDLESS))

    # 2**product; in this order of min and max, NaN stays NaN.
    product = tirx.Select(is_one, double(0), _wide(exponent) * logarithm)
    product = bind(tirx.Select(is_nan, double(float("nan")), product))
    bounded = bind(tirx.max(double(_LEAST_POWER), tirx.min(double(_MOST_POWER), product)))
    nearest = bind(tirx.nearbyint(bounded))
    result_exponent = tirx.reinterpret("int64", nearest + double(_WIDE_ROUNDING)) + _long(_BIAS)
    scale = tirx.reinterpret("float64", tirx.shift_left(result_exponent, _long(_MANTISSA)))
    result = polynomial(bind(bounded - nearest), _EXP2) * scale

    odd = tirx.all(is_whole, tirx.NE(tirx.trunc(half), half))
    sign = tirx.Select(odd, float_bits(base), tirx.const(0, "int32")) & tirx.const(-(2**31), "int32")
    return float_from_bits(float_bits(tirx.Cast("float32", result)) ^ sign)


def remainder(bind: Bind, dividend: Any, divisor: Any) -> Any:
    """Return the exact remainder of the division, with the sign of the dividend."""
    remaining, unit = bind(_wide(magnitude(dividend))), bind(_wide(magnitude(divisor)))
    inverse = bind(double(1) / unit)
    for step in range(_EXPONENTS // _QUOTIENT_BITS, -1, -1):
        scale = 2.0 ** (step * _QUOTIENT_BITS)
        times = tirx.nearbyint(remaining * (inverse * double(1 / scale)))
        remaining = bind(remaining - times * (unit * double(scale)))
    result_size = tirx.Cast("float32", tirx.Select(remaining < double(0), remaining + unit, remaining))
    is_valid = tirx.all(magnitude(divisor) > float32_const(0), magnitude(dividend) < float32_const(ENDLESS))
    result = tirx.Select(is_valid, with_sign(result_size, dividend), float32_const(float("nan")))
    fewer = tirx.Select(magnitude(dividend) < magnitude(divisor), dividend, result)
    return tirx.Select(tirx.isnan(divisor), divisor, fewer)


def _wide(value: Any) -> Any:
    return tirx.Cast("float64", value)


def double(value: float) -> Any:
    return tirx.const(value, "float64")


def _long(value: int) -> Any:
    return tirx.const(value, "int64")


# Sine, cosine and tangent, and their inverses, are computed as in Cephes. Angles are reduced to an
# eighth of a turn in float64, by pi / 2 in two parts (Cody and Waite). Up to 1e9 this adds
# an error of less than 1e-7; above, the error grows with the angle (ADR 0071).
# The first part of pi / 2 has 33 bits: its product with up to 2**20 quarter turns is exact.
_HALF_PI: Final = (1.5707963267341256, 6.077100506506192e-11)
_WIDE_ROUNDING: Final = 1.5 * 2**_MANTISSA  # adding it to a float64 number rounds that number
_LARGEST: Final = 2.0**50  # larger angles count as this one, so that every result is bounded
# Cephes: sin(r) = r + r**3 * _SIN(r**2), cos(r) = 1 - r**2 / 2 + r**4 * _COS(r**2), and
# tan(r) = r + r**3 * _TAN(r**2), for r up to pi / 4.
_SIN: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_TAN: Final = (
    *(9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2),
    *(5.34112807005e-2, 1.33387994085e-1, 3.33331568548e-1),
)


@dataclass(frozen=True)
class Angle:
    """An angle: a number of quarter turns, plus a remainder in radians (at most pi / 4)."""

    quarters: Any
    radians: Any
    square: Any

    def sine(self) -> Any:
        return self.radians + self.radians * self.square * polynomial(self.square, _SIN)

    def cosine(self) -> Any:
        tail = self.square * self.square * polynomial(self.square, _COS)
        return float32_const(1) - (self.square * float32_const(0.5) - tail)

    def is_odd(self) -> Any:
        return tirx.NE(self.quarters & 1, tirx.const(0, "int32"))


def sin(bind: Bind, x: Any) -> Any:
    """Return sin(x), accurate for angles up to 1e9."""
    angle = _angle(bind, magnitude(x))
    result = tirx.Select(angle.is_odd(), angle.cosine(), angle.sine())
    return _negated(result, angle.quarters, float_bits(x))


def cos(bind: Bind, x: Any) -> Any:
    """Return cos(x), accurate for angles up to 1e9."""
    angle = _angle(bind, magnitude(x))
    result = tirx.Select(angle.is_odd(), angle.sine(), angle.cosine())
    return _negated(result, angle.quarters + 1, tirx.const(0, "int32"))


def tan(bind: Bind, x: Any) -> Any:
    """Return tan(x), accurate for angles up to 1e9."""
    angle = _angle(bind, magnitude(x))
    result = bind(angle.radians + angle.radians * angle.square * polynomial(angle.square, _TAN))
    return _negated(
        tirx.Select(angle.is_odd(), float32_const(-1) / result, result), tirx.const(0, "int32"), float_bits(x)
    )


def _negated(value: Any, quarters: Any, sign: Any) -> Any:
    """Negate in the third and fourth quarter turn, and again if `sign` is negative."""
    flip = tirx.shift_left(quarters & 2, tirx.const(30, "int32"))
    return float_from_bits(float_bits(value) ^ flip ^ (sign & tirx.const(-(2**31), "int32")))


def _angle(bind: Bind, x: Any) -> Angle:
    """Return a non-negative number as an angle; the radians are NaN for NaN, infinity."""
    wide = bind(tirx.Cast("float64", tirx.Select(x < float32_const(_LARGEST), x, float32_const(_LARGEST))))
    sum_ = bind(wide * double(2 / math.pi) + double(_WIDE_ROUNDING))
    turns = bind(sum_ - double(_WIDE_ROUNDING))
    radians = tirx.Cast("float32", wide - turns * double(_HALF_PI[0]) - turns * double(_HALF_PI[1]))
    radians = bind(tirx.Select(x < float32_const(ENDLESS), radians, float32_const(float("nan"))))
    quarters = bind(tirx.Cast("int32", tirx.reinterpret("int64", sum_)))
    return Angle(quarters, radians, bind(radians * radians))


# Cephes: asin(a) = a + a**3 * _ASIN(a**2) for a up to 0.5, and atan(a) = a + a**3 *
# _ATAN(a**2) for a up to tan(pi / 8).
_ASIN: Final = (*(4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2), *(7.4953002686e-2, 1.6666752422e-1))
_ATAN: Final = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_EIGHTH: Final = 0.4142135623730950  # tan(pi / 8); its inverse is tan(3 pi / 8)


def asin(bind: Bind, x: Any) -> Any:
    """Return the arc sine; NaN if abs(x) > 1."""
    far, arc = _reduced_asin(bind, bind(magnitude(x)))
    return with_sign(tirx.Select(far, float32_const(math.pi / 2) - (arc + arc), arc), x)


def acos(bind: Bind, x: Any) -> Any:
    """Return the arc cosine; NaN if abs(x) > 1."""
    far, arc = _reduced_asin(bind, bind(magnitude(x)))
    negative = x < float32_const(0)
    outer = tirx.Select(negative, float32_const(math.pi) - (arc + arc), arc + arc)
    return tirx.Select(far, outer, float32_const(math.pi / 2) - tirx.Select(negative, -arc, arc))


def atan(bind: Bind, x: Any) -> Any:
    size = bind(magnitude(x))
    steep, middle = size > float32_const(1 / _EIGHTH), size > float32_const(_EIGHTH)
    numerator = tirx.Select(steep, float32_const(-1), tirx.Select(middle, size - float32_const(1), size))
    denominator = tirx.Select(steep, size, tirx.Select(middle, size + float32_const(1), float32_const(1)))
    ratio = bind(numerator / denominator)
    eighth = tirx.Select(middle, float32_const(math.pi / 4), float32_const(0))
    start = tirx.Select(steep, float32_const(math.pi / 2), eighth)
    square = bind(ratio * ratio)
    return with_sign(start + (ratio + ratio * square * polynomial(square, _ATAN)), x)


def _reduced_asin(bind: Bind, size: Any) -> tuple[Any, Any]:
    """Return whether size > 0.5; and if so asin(sqrt((1 - size) / 2)), else asin(size)."""
    far = size > float32_const(0.5)
    square = bind(tirx.Select(far, (float32_const(1) - size) * float32_const(0.5), size * size))
    start = bind(tirx.Select(far, tirx.sqrt(square), size))
    return far, bind(start + start * square * polynomial(square, _ASIN))
