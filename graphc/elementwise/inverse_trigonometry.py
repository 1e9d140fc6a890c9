"""Arc sine, arc cosine and arc tangent: polynomials of what symmetries leave small (Cephes)."""

from math import pi
from typing import Any, Final

from tvm import tirx

from graphc.elementwise.number_function import Once, magnitude, polynomial, real, with_sign

# Of squares: asin(a) - a is a**3 times the first while a is at most a half, and atan(a) - a is a**3 times the
# second while a is at most the tangent of pi / 8.
_ASIN: Final = (
    *(4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2),
    *(7.4953002686e-2, 1.6666752422e-1),
)
_ATAN: Final = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_EIGHTH: Final = 0.4142135623730950  # the tangent of pi / 8; that of three times the angle is its inverse


def asin(once: Once, x: Any) -> Any:
    """The arc sine; none beyond one."""
    far, arc = _arc(once, once(magnitude(x)))
    return with_sign(tirx.Select(far, real(pi / 2) - (arc + arc), arc), x)


def acos(once: Once, x: Any) -> Any:
    """The arc cosine; none beyond one."""
    far, arc = _arc(once, once(magnitude(x)))
    negative = x < real(0)
    outer = tirx.Select(negative, real(pi) - (arc + arc), arc + arc)
    return tirx.Select(far, outer, real(pi / 2) - tirx.Select(negative, -arc, arc))


def atan(once: Once, x: Any) -> Any:
    """The arc tangent."""
    size = once(magnitude(x))
    steep, middle = size > real(1 / _EIGHTH), size > real(_EIGHTH)
    above = tirx.Select(steep, real(-1), tirx.Select(middle, size - real(1), size))
    below = tirx.Select(steep, size, tirx.Select(middle, size + real(1), real(1)))
    turned = once(above / below)
    start = tirx.Select(steep, real(pi / 2), tirx.Select(middle, real(pi / 4), real(0)))
    square = once(turned * turned)
    return with_sign(start + (turned + turned * square * polynomial(square, _ATAN)), x)


def _arc(once: Once, size: Any) -> tuple[Any, Any]:
    """Whether a number is beyond a half, and its arc sine; there that of the root of half its rest to one."""
    far = size > real(0.5)
    square = once(tirx.Select(far, (real(1) - size) * real(0.5), size * size))
    start = once(tirx.Select(far, tirx.sqrt(square), size))
    return far, once(start + start * square * polynomial(square, _ASIN))
