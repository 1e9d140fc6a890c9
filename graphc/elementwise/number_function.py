"""Functions of single numbers as expressions that LLVM makes vectors of: without calls and branches."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final

from tvm import te, tirx, topi

MANTISSA_BITS: Final = 23
BIAS: Final = 127
ENDLESS: Final = float("inf")
# What is added to a number to round it: the sum has no bits for parts of one.
_ROUNDING: Final = 1.5 * 2**MANTISSA_BITS
# A name stands for bits, by their number. TVM writes an integer out wherever its name is read, and what it
# knows of a real number doubles with every choice; it looks into no bits.
_KINDS: Final = {32: ("int32", "float32"), 64: ("int64", "float64")}
Once = Callable[[Any], Any]  # names a value that is read several times, and computes it once
NumberFunction = Callable[..., Any]  # takes a Once and numbers


class NamedValues:
    """The values that a function of numbers names on its way to the result."""

    def __init__(self) -> None:
        self._values: list[tuple[Any, Any]] = []

    def once(self, value: Any) -> Any:
        """A name for the value."""
        own = str(value.ty.dtype)
        as_integer, as_real = _KINDS[int(own[-2:])]
        name = tirx.Var("value", as_real)
        integer = value if own.startswith(("int", "uint")) else tirx.reinterpret(as_integer, value)
        self._values.append((name, tirx.reinterpret(as_real, integer)))
        return name if own == as_real else tirx.reinterpret(own, name)

    def before(self, result: Any) -> Any:
        """The result, with the values that it reads in front of it."""
        for name, value in reversed(self._values):
            result = tirx.Let(name, value, result)
        return result


def elementwise(function: NumberFunction, *tensors: Any) -> Any:
    """A tensor of what the function makes of the numbers at each place; operands are broadcast."""

    def at(*place: Any) -> Any:
        values, numbers = NamedValues(), []
        for tensor in tensors:
            axes = zip(tensor.shape, place[len(place) - len(tensor.shape) :], strict=True)
            numbers.append(tensor(*(0 if int(size) == 1 else index for size, index in axes)))
        return values.before(function(values.once, *map(values.once, numbers)))

    return te.compute(reduce(topi.add, tensors).shape, at, name=function.__name__)


def real(value: float) -> Any:
    return tirx.const(value, "float32")


def bits(value: Any) -> Any:
    """A real number's sign, exponent and mantissa, as an integer."""
    return tirx.reinterpret("int32", value)


def of_bits(value: Any) -> Any:
    return tirx.reinterpret("float32", value)


def magnitude(value: Any) -> Any:
    return of_bits(bits(value) & 0x7FFFFFFF)


def with_sign(value: Any, of: Any) -> Any:
    """A number that is not negative, with the sign of another."""
    return of_bits(bits(value) | (bits(of) & tirx.const(-(2**31), "int32")))


def within(value: Any, least: float, most: float) -> Any:
    """The number or the limit that it passes; what is no number stays so."""
    return tirx.max(real(least), tirx.min(real(most), value))


def polynomial(value: Any, factors: Iterable[float]) -> Any:
    """Its sum, with the factor of the highest power first."""
    first, *others = (tirx.const(factor, str(value.ty.dtype)) for factor in factors)
    for factor in others:
        first = first * value + factor
    return first


def rounded(once: Once, value: Any) -> tuple[Any, Any]:
    """The nearest whole number, as a real and as an integer."""
    sum_ = once(value + real(_ROUNDING))
    return once(sum_ - real(_ROUNDING)), once(bits(sum_) - bits(real(_ROUNDING)))


def power_of_two(exponent: Any) -> Any:
    """Of an integer between -126 and 127."""
    return of_bits(tirx.shift_left(exponent + BIAS, tirx.const(MANTISSA_BITS, "int32")))


def split(once: Once, value: Any) -> tuple[Any, Any]:
    """Of a positive number the exponent, and the rest less one: between the roots of a half and of two."""
    small = value < real(2.0**-126)  # smaller numbers have no exponent of their own
    whole = once(bits(tirx.Select(small, value * real(2.0**MANTISSA_BITS), value)))
    exponent = once(tirx.shift_right(whole - bits(real(0.5**0.5)), tirx.const(MANTISSA_BITS, "int32")))
    mantissa = of_bits(whole - tirx.shift_left(exponent, tirx.const(MANTISSA_BITS, "int32")))
    scale = tirx.Cast("float32", exponent) - tirx.Select(small, real(MANTISSA_BITS), real(0))
    return once(scale), once(mantissa - real(1))
