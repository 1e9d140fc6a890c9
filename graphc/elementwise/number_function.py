"""Functions of single numbers as branch-free expressions that LLVM can vectorise."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final

from tvm import te, tirx, topi

MANTISSA_BITS: Final = 23
BIAS: Final = 127
ENDLESS: Final = float("inf")
# Adding it to a number rounds that number: the sum has no bits for fractions.
_ROUNDING: Final = 1.5 * 2**MANTISSA_BITS
# A named value is stored as bits of the float type of its width. TVM inlines an integer
# wherever its name is read, and its analysis of a float doubles with every choice; TVM does
# not analyse reinterpreted bits.
_KINDS: Final = {32: ("int32", "float32"), 64: ("int64", "float64")}
Once = Callable[[Any], Any]  # names a value that is read several times, to compute it once
NumberFunction = Callable[..., Any]  # takes a Once and numbers


class NamedValues:
    """The intermediate values that a function of numbers binds to names."""

    def __init__(self) -> None:
        self._values: list[tuple[Any, Any]] = []

    def once(self, value: Any) -> Any:
        """Bind the value to a new name and return the name."""
        own = str(value.ty.dtype)
        as_integer, as_real = _KINDS[int(own[-2:])]
        name = tirx.Var("value", as_real)
        integer = value if own.startswith(("int", "uint")) else tirx.reinterpret(as_integer, value)
        self._values.append((name, tirx.reinterpret(as_real, integer)))
        return name if own == as_real else tirx.reinterpret(own, name)

    def before(self, result: Any) -> Any:
        """Wrap the result in the let-bindings of all named values."""
        for name, value in reversed(self._values):
            result = tirx.Let(name, value, result)
        return result


def elementwise(function: NumberFunction, *tensors: Any) -> Any:
    """Return a tensor of the function's results at each place; operands are broadcast."""

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
    """Return the bits of a float32 number (sign, exponent, mantissa) as an int32."""
    return tirx.reinterpret("int32", value)


def of_bits(value: Any) -> Any:
    return tirx.reinterpret("float32", value)


def magnitude(value: Any) -> Any:
    return of_bits(bits(value) & 0x7FFFFFFF)


def with_sign(value: Any, of: Any) -> Any:
    """Give a non-negative number the sign of another."""
    return of_bits(bits(value) | (bits(of) & tirx.const(-(2**31), "int32")))


def within(value: Any, least: float, most: float) -> Any:
    """Limit the number to [least, most]; NaN stays NaN."""
    return tirx.max(real(least), tirx.min(real(most), value))


def polynomial(value: Any, factors: Iterable[float]) -> Any:
    """Evaluate a polynomial by Horner's rule; the factor of the highest power comes first."""
    first, *others = (tirx.const(factor, str(value.ty.dtype)) for factor in factors)
    for factor in others:
        first = first * value + factor
    return first


def rounded(once: Once, value: Any) -> tuple[Any, Any]:
    """Return the nearest whole number, as a float and as an integer."""
    sum_ = once(value + real(_ROUNDING))
    return once(sum_ - real(_ROUNDING)), once(bits(sum_) - bits(real(_ROUNDING)))


def power_of_two(exponent: Any) -> Any:
    """Return 2**exponent for an integer exponent between -126 and 127."""
    return of_bits(tirx.shift_left(exponent + BIAS, tirx.const(MANTISSA_BITS, "int32")))


def split(once: Once, value: Any) -> tuple[Any, Any]:
    """Split a positive number into an exponent and a mantissa around 1; return mantissa - 1."""
    small = value < real(2.0**-126)  # denormal numbers have no exponent of their own
    pattern = once(bits(tirx.Select(small, value * real(2.0**MANTISSA_BITS), value)))
    exponent = once(tirx.shift_right(pattern - bits(real(0.5**0.5)), tirx.const(MANTISSA_BITS, "int32")))
    mantissa = of_bits(pattern - tirx.shift_left(exponent, tirx.const(MANTISSA_BITS, "int32")))
    scale = tirx.Cast("float32", exponent) - tirx.Select(small, real(MANTISSA_BITS), real(0))
    return once(scale), once(mantissa - real(1))
