"""Sine, cosine and tangent, and their inverses, after Cephes.

Angles are reduced to an eighth of a turn in float64, by pi / 2 in two parts (Cody and
Waite). Up to 1e9 this adds an error of less than 1e-7; above, the error grows with the
angle (ADR 0071).
"""

from dataclasses import dataclass
from math import pi
from typing import Any, Final

from tvm import tirx

from mallorn.graphc.elementwise.vectorizable_math_functions import (
    ENDLESS,
    Bind,
    double,
    float32_const,
    float_bits,
    float_from_bits,
    magnitude,
    polynomial,
    with_sign,
)

# pi / 2 in two parts. The first has 33 bits: its product with up to 2**20 quarter turns is exact.
_HALF_PI: Final = (1.5707963267341256, 6.077100506506192e-11)
_ROUNDING: Final = 1.5 * 2**52  # adding it to a float64 number rounds that number
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
    """Return a non-negative number as an angle; its radians are NaN for NaN and infinity."""
    wide = bind(tirx.Cast("float64", tirx.Select(x < float32_const(_LARGEST), x, float32_const(_LARGEST))))
    sum_ = bind(wide * double(2 / pi) + double(_ROUNDING))
    turns = bind(sum_ - double(_ROUNDING))
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
    return with_sign(tirx.Select(far, float32_const(pi / 2) - (arc + arc), arc), x)


def acos(bind: Bind, x: Any) -> Any:
    """Return the arc cosine; NaN if abs(x) > 1."""
    far, arc = _reduced_asin(bind, bind(magnitude(x)))
    negative = x < float32_const(0)
    outer = tirx.Select(negative, float32_const(pi) - (arc + arc), arc + arc)
    return tirx.Select(far, outer, float32_const(pi / 2) - tirx.Select(negative, -arc, arc))


def atan(bind: Bind, x: Any) -> Any:
    size = bind(magnitude(x))
    steep, middle = size > float32_const(1 / _EIGHTH), size > float32_const(_EIGHTH)
    numerator = tirx.Select(steep, float32_const(-1), tirx.Select(middle, size - float32_const(1), size))
    denominator = tirx.Select(steep, size, tirx.Select(middle, size + float32_const(1), float32_const(1)))
    ratio = bind(numerator / denominator)
    eighth = tirx.Select(middle, float32_const(pi / 4), float32_const(0))
    start = tirx.Select(steep, float32_const(pi / 2), eighth)
    square = bind(ratio * ratio)
    return with_sign(start + (ratio + ratio * square * polynomial(square, _ATAN)), x)


def _reduced_asin(bind: Bind, size: Any) -> tuple[Any, Any]:
    """Return whether size > 0.5; and if so asin(sqrt((1 - size) / 2)), else asin(size)."""
    far = size > float32_const(0.5)
    square = bind(tirx.Select(far, (float32_const(1) - size) * float32_const(0.5), size * size))
    start = bind(tirx.Select(far, tirx.sqrt(square), size))
    return far, bind(start + start * square * polynomial(square, _ASIN))
