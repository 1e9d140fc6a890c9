"""What is rounded to steps of 8 bits is computed at once, with scales and zero points as one argument.

Behind a product stand its scale, a bias, the next scale and zero points, one operator each. They are one
factor and one summand for each number that is read, so a convolution and what follows it is the same task in
layers whose scales differ. What rounds is one function from bytes to bytes, so that where two products meet
neither writes real numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import tvm
from tvm import relax

rewriting = import_module(f"{__package__}.rewriting" if __package__ else "rewriting")
_INTEGERS = ("int32", "int16", "int8", "uint8")
_ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
Values = Mapping[Any, Any]
Limits = tuple[float, ...]  # the least and the most


@dataclass(frozen=True)
class Linear:
    """Values, each with its factors, and what is added: numbers, or vectors along the last axis."""

    terms: tuple[tuple[Any, Any], ...] = ()
    constant: Any = field(default_factory=lambda: np.float64(0))

    def __add__(self, other: "Linear") -> "Linear":
        return Linear((*self.terms, *other.terms), self.constant + other.constant)

    def times(self, factor: Any) -> "Linear":
        return Linear(tuple((value, by * factor) for value, by in self.terms), self.constant * factor)


@dataclass(frozen=True)
class Rounded:
    """A sum that is rounded and kept within limits."""

    sum: Linear
    least: float
    most: float


@dataclass(frozen=True)
class Limited:
    """A value that is kept within limits."""

    value: Any
    limits: Limits


def steps() -> Any:
    """The pass that rewrites what becomes bytes without a sign."""
    return rewriting.graph_pass("Steps", _rewrite)


def _rewrite(builder: Any, graph: Any) -> Any:
    reading = _Reading(relax.analysis.get_var2val(graph), rewriting.readers_of(graph))

    def rewrite(call: Any) -> Any:
        found = reading.rounded(call)
        if found is None:
            return call
        sizes = rewriting.sizes_of(call)
        function = builder.add_func(_function(found, sizes), "to_steps")
        factors = map(relax.const, _factors(found.sum, sizes[-1]))
        return relax.call_tir(function, [*(value for value, _ in found.sum.terms), *factors], call.ty)

    return rewriting.rewrite_known(graph, "relax.astype", rewrite)


class _Reading:
    """Reads arithmetic backwards."""

    def __init__(self, values: Values, readers: Mapping[Any, Any]) -> None:
        self._values, self._readers = values, readers

    def rounded(self, call: Any) -> Rounded | None:
        """What `integers` wrote for an encoding, from its last operator on."""
        whole = self._inner(call.args[0], "relax.astype")
        if call.ty.dtype != "uint8" or whole is None or whole.ty.dtype != "int32":
            return None
        below = self._inner(whole.args[0], "relax.minimum")
        above = None if below is None else self._inner(below.args[0], "relax.maximum")
        if above is None or below is None:
            return None
        most, least = (_array(value) for value in (below.args[1], above.args[1]))
        moved, zero = self._moved(above.args[0])
        round_ = self._inner(moved, "relax.round")
        if round_ is None or most is None or least is None or zero.ndim or most.ndim or least.ndim:
            return None
        sizes = rewriting.sizes_of(call)
        found = self._limited(round_.args[0], sizes, float(zero), (float(least), float(most)))
        computed = len(found.sum.terms) > 0 and all(
            rewriting.sizes_of(value) == sizes for value, _ in found.sum.terms
        )
        return found if computed else None

    def _moved(self, value: Any) -> tuple[Any, Any]:
        """A value before a constant was added to it, and that."""
        added = self._inner(value, "relax.add")
        by = None if added is None else _array(added.args[1])
        return (value, np.float64(0)) if added is None or by is None else (added.args[0], by)

    def _limited(self, value: Any, sizes: tuple[int, ...], zero: float, limits: Limits) -> Rounded:
        """A value that is to be rounded; limits inside become those of the steps."""
        found = self.linear(value, sizes)
        while (inner := self._limit(found)) is not None:
            ((_, factor),) = found.terms
            limits = tuple(
                keep(limit, float(np.rint(bound * factor + found.constant)) + zero)
                for keep, limit, bound in zip((max, min), limits, inner.limits, strict=True)
            )
            found = self.linear(inner.value, sizes).times(factor) + Linear((), found.constant)
        return Rounded(found + Linear((), np.float64(zero)), *limits)

    def _limit(self, found: Linear) -> "Limited | None":
        """The only value, if it was kept within limits that are the same everywhere."""
        if len(found.terms) != 1 or np.ndim(found.constant):
            return None
        ((value, factor),) = found.terms
        call = self._values.get(value) if self._read_once(value) else None
        name = getattr(getattr(call, "op", None), "name", "")
        if call is None or np.ndim(factor) or not factor > 0:
            return None
        if name == "relax.nn.relu":
            return Limited(call.args[0], (0.0, np.inf))
        bound = _array(call.args[1]) if name in ("relax.maximum", "relax.minimum") else None
        if bound is None or bound.ndim:
            return None
        limits = (float(bound), np.inf) if name == "relax.maximum" else (-np.inf, float(bound))
        return Limited(call.args[0], limits)

    def linear(self, value: Any, sizes: tuple[int, ...]) -> Linear:
        """A value as a sum, as far as only this reads what is inside, and it is of the result's sizes."""
        known = _array(value)
        if known is not None:
            return Linear((), known)
        call = self._values.get(value) if self._read_once(value) else None
        found = self._opened(call, sizes) if isinstance(call, relax.Call) else None
        return found or Linear(((value, np.float64(1)),))

    def _opened(self, call: Any, sizes: tuple[int, ...]) -> Linear | None:
        name = getattr(call.op, "name", "")
        if name == "relax.astype" and call.args[0].ty.dtype in _INTEGERS:
            return self._whole(call.args[0])
        if name not in _ARITHMETIC or call.ty.dtype != "float32" or rewriting.sizes_of(call) != sizes:
            return None
        left, right = (self.linear(value, sizes) for value in call.args)
        if name == "relax.add":
            return left + right
        if name == "relax.subtract":
            return left + right.times(-1.0)
        if left.terms and right.terms:
            return None
        by, of = (left, right) if right.terms else (right, left)
        if name == "relax.divide" and right.terms:
            return None
        return of.times(1 / by.constant if name == "relax.divide" else by.constant)

    def _whole(self, value: Any) -> Linear:
        """Integers, and what was taken from them."""
        less = self._inner(value, "relax.subtract")
        by = None if less is None else _array(less.args[1])
        if less is None or by is None or value.ty.dtype != "int32":
            return Linear(((value, np.float64(1)),))
        return Linear(((less.args[0], np.float64(1)),), -by)

    def _inner(self, value: Any, operator: str) -> Any | None:
        return rewriting.call_of(self._values, value, operator) if self._read_once(value) else None

    def _read_once(self, value: Any) -> bool:
        return bool(rewriting.read_once(self._readers, value))


def _array(value: Any) -> Any | None:
    """A constant of one number, or one a place along the last axis."""
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    found = value.value.numpy().astype("float64")
    if found.size == 1:
        return found.reshape(())
    return found.reshape(-1) if found.shape[-1] == found.size else None


def _factors(sum_: Linear, columns: int) -> list[Any]:
    """The values' factors, then what is added, each a vector along the last axis: arguments, not numbers."""
    rows = *(by for _, by in sum_.terms), sum_.constant
    return [np.broadcast_to(row, columns).astype("float32") for row in rows]


def _function(found: Rounded, sizes: tuple[int, ...]) -> Any:
    """TVM finds by itself that this is element-wise, and fuses it behind products."""
    values, axes = [value for value, _ in found.sum.terms], [f"i{axis}" for axis in range(len(sizes))]
    numbers = rewriting.numbers(sizes)
    place, last = ", ".join(f"v{axis}" for axis in axes), f"v{axes[-1]}"
    text = f"k{len(values)}[{last}]"
    for at in reversed(range(len(values))):
        text = f'T.Cast("float32", x{at}[{place}]) * k{at}[{last}] + {text}'
    buffers = [
        *(
            f'x{at}: T.Buffer(({rewriting.numbers(sizes)}), "{each.ty.dtype}")'
            for at, each in enumerate(values)
        ),
        *(f'k{at}: T.Buffer((T.int64({sizes[-1]}),), "float32")' for at in range(len(values) + 1)),
        f'y: T.Buffer(({numbers}), "uint8")',
    ]
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(axes)} in T.grid({numbers}):
        with T.sblock("to_steps"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = T.Cast("uint8", T.Cast("int32", T.min(T.max(
                T.round({text}), T.float32({found.least!r})), T.float32({found.most!r}))))
""")
