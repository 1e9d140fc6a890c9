"""What is rounded to steps of 8 bits is computed at once, with scales and zero points as one argument.

Behind a product stand its scale, a bias, the next scale and zero points, one operator each. They are one
factor and one summand for each number that is read, so a convolution and what follows it is the same task in
layers whose scales differ. What rounds is one function from bytes to bytes, so that where two products meet
neither writes real numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from graphc.core import graph_rewriting

_BYTES, _PRODUCTS = ("int8", "uint8"), ("relax.call_tir", "relax.nn.conv2d", "relax.matmul")
_INTEGERS = ("int32", "int16", *_BYTES)
_ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")
# Added to a number of few digits, it leaves the nearest whole one, of two the even one, in the last bits.
_WHOLE = 1.5 * 2**23
Values = Mapping[Any, Any]
Limits = tuple[float, ...]  # the least and the most


@dataclass(frozen=True)
class Linear:
    """Values, each with its factors, and what is added: numbers, or vectors along the last axis."""

    terms: tuple[tuple[Any, Any], ...] = ()
    constant: Any = field(default_factory=lambda: np.float64(0))
    inside: frozenset[Any] = frozenset()  # what it is made of, and nothing else reads

    def __add__(self, other: "Linear") -> "Linear":
        inside = self.inside | other.inside
        return Linear((*self.terms, *other.terms), self.constant + other.constant, inside)

    def times(self, factor: Any) -> "Linear":
        terms = tuple((value, by * factor) for value, by in self.terms)
        return Linear(terms, self.constant * factor, self.inside)


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
    return graph_rewriting.graph_pass("Steps", _rewrite)


def reals() -> Any:
    """The pass that rewrites what bytes and sums become where real numbers are needed."""
    return graph_rewriting.graph_pass("Reals", _rewrite_reals)


def _rewrite(builder: Any, graph: Any) -> Any:
    reading = _Reading(relax.analysis.get_var2val(graph), graph_rewriting.readers_of(graph))

    def rewrite(call: Any) -> Any:
        found = reading.rounded(call)
        if found is None:
            return call
        limits = f"T.float32({found.least!r})", f"T.float32({found.most!r})"
        within = "T.min(T.max({{}}, {}), {})".format(*limits)
        text = f"T.Cast('uint8', T.reinterpret('int32', {within} + T.float32({_WHOLE!r})))"
        return _computed(builder, "to_steps", found.sum, text, call.ty)

    return graph_rewriting.rewrite_known(graph, "relax.astype", rewrite)


def _rewrite_reals(builder: Any, graph: Any) -> Any:
    reading = _Reading(relax.analysis.get_var2val(graph), graph_rewriting.readers_of(graph))
    return _Reals(builder, reading.decoded()).visit_expr(graph)


@mutator
class _Reals(PyExprMutator):  # type: ignore[misc]
    """Patterns of products would be matched as TVM thinks of them: a quotient of one is one."""

    def __init__(self, builder: Any, sums: Sequence[tuple[Any, Linear]]) -> None:
        super().__init__(builder.get())
        self._of, self._sums = builder, sums

    def visit_call_(self, call: Any) -> Any:
        found = next((sum_ for other, sum_ in self._sums if other.same_as(call)), None)
        if found is None:
            return self.visit_expr_post_order(call)
        terms = tuple((self.visit_expr(value), by) for value, by in found.terms)
        return _computed(self._of, "to_reals", Linear(terms, found.constant), "{}", call.ty)


def _computed(builder: Any, name: str, sum_: Linear, text: str, ty: Any) -> Any:
    """A call of a function of the values that are summed up."""
    values, sizes = [value for value, _ in sum_.terms], tuple(map(int, ty.shape))
    function = builder.add_func(_function(name, values, text, sizes, str(ty.dtype)), name)
    return relax.call_tir(function, [*values, *map(relax.const, _factors(sum_, sizes[-1]))], ty)


class _Reading:
    """Reads arithmetic backwards."""

    def __init__(self, values: Values, readers: Mapping[Any, Any]) -> None:
        self._values, self._readers = values, readers

    def decoded(self) -> list[tuple[Any, Linear]]:
        """Calls that sum up integers and others, each with its sum, but for those inside another."""
        found = []
        for var, call in self._values.items():
            if isinstance(call, relax.Call) and getattr(call.op, "name", "") in _ARITHMETIC:
                sum_ = (
                    self._opened(call, graph_rewriting.sizes_of(call))
                    if graph_rewriting.known(call)
                    else None
                )
                if sum_ is not None and self._of_integers(sum_, call):
                    found.append((var, call, sum_))
        inside = frozenset[Any]().union(*(sum_.inside for _, _, sum_ in found))
        return [(call, sum_) for var, call, sum_ in found if var not in inside]

    def _of_integers(self, sum_: Linear, call: Any) -> bool:
        alike = all(
            graph_rewriting.sizes_of(value) == graph_rewriting.sizes_of(call) for value, _ in sum_.terms
        )
        return call.ty.ndim > 0 and alike and any(self._counted(value) for value, _ in sum_.terms)

    def _counted(self, value: Any) -> bool:
        """Whether these are bytes, or sums of a product's bytes: other integers may be places."""
        name = getattr(getattr(self._values.get(value), "op", None), "name", "")
        return value.ty.dtype in _BYTES or (value.ty.dtype == "int32" and name in _PRODUCTS)

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
        sizes = graph_rewriting.sizes_of(call)
        found = self._limited(round_.args[0], sizes, float(zero), (float(least), float(most)))
        computed = len(found.sum.terms) > 0 and all(
            graph_rewriting.sizes_of(value) == sizes for value, _ in found.sum.terms
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
        if found is None:
            return Linear(((value, np.float64(1)),))
        return Linear(found.terms, found.constant, found.inside | {value})

    def _opened(self, call: Any, sizes: tuple[int, ...]) -> Linear | None:
        name = getattr(call.op, "name", "")
        if call.ty.dtype != "float32":
            return None
        if name == "relax.astype" and call.args[0].ty.dtype in _INTEGERS:
            return self._whole(call.args[0])
        if name not in _ARITHMETIC or graph_rewriting.sizes_of(call) != sizes:
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
        return graph_rewriting.call_of(self._values, value, operator) if self._read_once(value) else None

    def _read_once(self, value: Any) -> bool:
        return bool(graph_rewriting.read_once(self._readers, value))


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


def _function(name: str, values: list[Any], whole: str, sizes: tuple[int, ...], dtype: str) -> Any:
    """TVM finds by itself that this is element-wise, and fuses it behind products."""
    axes, numbers = [f"i{axis}" for axis in range(len(sizes))], graph_rewriting.numbers(sizes)
    place, last = ", ".join(f"v{axis}" for axis in axes), f"v{axes[-1]}"
    text = f"k{len(values)}[{last}]"
    for at in reversed(range(len(values))):
        text = f'T.Cast("float32", x{at}[{place}]) * k{at}[{last}] + {text}'
    buffers = [
        *(f'x{at}: T.Buffer(({numbers},), "{each.ty.dtype}")' for at, each in enumerate(values)),
        *(f'k{at}: T.Buffer((T.int64({sizes[-1]}),), "float32")' for at in range(len(values) + 1)),
        f'y: T.Buffer(({numbers},), "{dtype}")',
    ]
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(axes)} in T.grid({numbers}):
        with T.sblock("{name}"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = {whole.format(text)}
""")
