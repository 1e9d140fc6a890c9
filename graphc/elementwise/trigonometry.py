"""Sine, cosine and tangent of all float32 numbers, and their inverses, after Cephes.

Angles are converted to quarter turns: the mantissa is multiplied by those bits of 2 / pi
that affect the result (Payne and Hanek), so any angle is accurate, however large.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import pi
from typing import Any, Final

from tvm import tirx

from graphc.elementwise.number_functions import (
    BIAS,
    ENDLESS,
    MANTISSA_BITS,
    Bind,
    bits,
    magnitude,
    of_bits,
    polynomial,
    real,
    with_sign,
)

# The fraction bits of 2 / pi, after 32 zero bits that the smallest numbers need.
_TWO_OVER_PI: Final = (
    *(0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1),
    *(0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB),
)
_OFFSET: Final = 7  # offset of the first bit that a number between 1 and 2 needs
_WORD: Final = 32
# Cephes: sin(r) = r + r**3 * _SIN(r**2), cos(r) = 1 - r**2 / 2 + r**4 * _COS(r**2), and tan(r)
# = r + r**3 * _TAN(r**2), for r up to pi / 4.
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
        return real(1) - (self.square * real(0.5) - tail)

    def is_odd(self) -> Any:
        return tirx.NE(self.quarters & 1, tirx.const(0, "int32"))


def sin(bind: Bind, x: Any) -> Any:
    """Return sin(x), accurate for angles of any size."""
    angle = _angle(bind, magnitude(x))
    result = tirx.Select(angle.is_odd(), angle.cosine(), angle.sine())
    return _negated(result, angle.quarters, bits(x))


def cos(bind: Bind, x: Any) -> Any:
    """Return cos(x), accurate for angles of any size."""
    angle = _angle(bind, magnitude(x))
    result = tirx.Select(angle.is_odd(), angle.sine(), angle.cosine())
    return _negated(result, angle.quarters + 1, tirx.const(0, "int32"))


def tan(bind: Bind, x: Any) -> Any:
    """Return tan(x), accurate for angles of any size."""
    angle = _angle(bind, magnitude(x))
    result = bind(angle.radians + angle.radians * angle.square * polynomial(angle.square, _TAN))
    return _negated(tirx.Select(angle.is_odd(), real(-1) / result, result), tirx.const(0, "int32"), bits(x))


def _negated(value: Any, quarters: Any, sign: Any) -> Any:
    """Negate in the third and fourth quarter turn, and again if `sign` is negative."""
    flip = tirx.shift_left(quarters & 2, tirx.const(_WORD - 2, "int32"))
    return of_bits(bits(value) ^ flip ^ (sign & tirx.const(-(2**31), "int32")))


def _angle(bind: Bind, x: Any) -> Angle:
    """Return a non-negative number as an angle; its radians are NaN for NaN and infinity."""
    turns = bind(_quarter_turns(bind, bits(x)))
    small = x < real(pi / 4)
    nearest = tirx.shift_right(turns + tirx.const(1 << 61, "int64"), tirx.const(62, "int64"))
    quarters = tirx.Select(small, tirx.const(0, "int32"), tirx.Cast("int32", nearest))
    parts = bind(tirx.shift_left(turns, tirx.const(2, "int64")))
    high = tirx.Cast("float32", tirx.Cast("int32", tirx.shift_right(parts, tirx.const(_WORD, "int64"))))
    low_bits = tirx.Cast("int32", tirx.shift_right(parts, tirx.const(1, "int64"))) & 0x7FFFFFFF
    low = tirx.Cast("float32", low_bits)
    radians = (high + low * real(2.0 ** (1 - _WORD))) * real(pi / 2 * 2.0**-_WORD)
    finite = tirx.Select(x < real(ENDLESS), radians, real(float("nan")))
    limited_radians = bind(tirx.Select(small, x, finite))
    return Angle(bind(quarters), limited_radians, bind(limited_radians * limited_radians))


def _quarter_turns(bind: Bind, word: Any) -> Any:
    """Return an angle (float32 bits) in quarter turns modulo 4, with 62 bits of fraction."""
    exponent = tirx.shift_right(word, tirx.const(MANTISSA_BITS, "int32")) - BIAS
    first = bind(exponent + _OFFSET)  # the first bit of 2 / pi that affects the result
    mantissa = bind(tirx.Cast("uint32", (word & 0x7FFFFF) | 0x800000))
    words = []  # four words of 2 / pi, from the word that contains this bit
    for index in range(4):
        place = tirx.shift_right(first, tirx.const(5, "int32"))
        pi_word = tirx.const(_TWO_OVER_PI[index], "uint32")
        for offset in range(1, len(_TWO_OVER_PI) - 3):
            later_word = tirx.const(_TWO_OVER_PI[index + offset], "uint32")
            pi_word = tirx.Select(place >= offset, later_word, pi_word)
        words.append(bind(pi_word))
    shift = bind(tirx.Cast("uint32", first & (_WORD - 1)))
    shifted = []  # by two shifts to the right, because one by 32 bits is undefined
    for current, following in pairwise(words):
        bit = tirx.const(1, "uint32")
        carried_bits = tirx.shift_right(
            tirx.shift_right(following, bit), tirx.const(_WORD - 1, "uint32") - shift
        )
        shifted.append(tirx.shift_left(current, shift) | carried_bits)
    high, middle, low = shifted
    upper = tirx.shift_left(_wide(mantissa * high), tirx.const(_WORD, "uint64"))
    carried = tirx.shift_right(_wide(mantissa) * _wide(low), tirx.const(_WORD, "uint64"))
    return tirx.reinterpret("int64", upper + _wide(mantissa) * _wide(middle) + carried)


def _wide(word: Any) -> Any:
    return tirx.Cast("uint64", word)


# Cephes: asin(a) = a + a**3 * _ASIN(a**2) for a up to 0.5, and atan(a) = a + a**3 *
# _ATAN(a**2) for a up to tan(pi / 8).
_ASIN: Final = (*(4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2), *(7.4953002686e-2, 1.6666752422e-1))
_ATAN: Final = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_EIGHTH: Final = 0.4142135623730950  # tan(pi / 8); its inverse is tan(3 pi / 8)


def asin(bind: Bind, x: Any) -> Any:
    """Return the arc sine; NaN if abs(x) > 1."""
    far, arc = _arc(bind, bind(magnitude(x)))
    return with_sign(tirx.Select(far, real(pi / 2) - (arc + arc), arc), x)


def acos(bind: Bind, x: Any) -> Any:
    """Return the arc cosine; NaN if abs(x) > 1."""
    far, arc = _arc(bind, bind(magnitude(x)))
    negative = x < real(0)
    outer = tirx.Select(negative, real(pi) - (arc + arc), arc + arc)
    return tirx.Select(far, outer, real(pi / 2) - tirx.Select(negative, -arc, arc))


def atan(bind: Bind, x: Any) -> Any:
    """Return the arc tangent."""
    size = bind(magnitude(x))
    steep, middle = size > real(1 / _EIGHTH), size > real(_EIGHTH)
    numerator = tirx.Select(steep, real(-1), tirx.Select(middle, size - real(1), size))
    denominator = tirx.Select(steep, size, tirx.Select(middle, size + real(1), real(1)))
    ratio = bind(numerator / denominator)
    start = tirx.Select(steep, real(pi / 2), tirx.Select(middle, real(pi / 4), real(0)))
    square = bind(ratio * ratio)
    return with_sign(start + (ratio + ratio * square * polynomial(square, _ATAN)), x)


def _arc(bind: Bind, size: Any) -> tuple[Any, Any]:
    """Return whether size > 0.5; and if so asin(sqrt((1 - size) / 2)), else asin(size)."""
    far = size > real(0.5)
    square = bind(tirx.Select(far, (real(1) - size) * real(0.5), size * size))
    start = bind(tirx.Select(far, tirx.sqrt(square), size))
    return far, bind(start + start * square * polynomial(square, _ASIN))
