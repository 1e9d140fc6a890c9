"""Build one module for all lengths of a dimension that grows, such as a cache's.

TVM's importer computes with known shapes. So the network is imported at two lengths, and what
differs between the two modules is written as a function of the length: sizes, and constants
that depend on it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from graphc.attention.fuse_cached_attention import FuseCachedAttention
from graphc.attention.vectorize_cache_concat import VectorizeCacheConcat

# Two lengths that are unlikely to occur as other sizes of a network; 1 would be broadcast.
LENGTHS = (11, 18)
MOST_PARTS = 8  # most columns of a constant that are generalised separately


def grown(first: Any, second: Any = None, name: str = "") -> Any:
    """Return the module for every length, given those at two; a single one as it is.

    Raises ValueError if their differences do not follow evenly from the length.
    """
    if second is None:
        return first
    builder, length = relax.BlockBuilder(tvm.IRModule()), tirx.Var(name, "int64")
    _Both(builder, length).main(first["main"], second["main"])
    mod = relax.transform.Normalize()(builder.finalize())
    for pass_class in (FuseCachedAttention, VectorizeCacheConcat):
        mod = pass_class(length, LENGTHS[0])(mod)
    return relax.transform.DeadCodeElimination()(mod)


def length_of(mod: Any) -> Any:
    """Return the variable that is the module's length."""
    sizes = [size for param in mod["main"].params for size in param.ty.shape]
    return next(size for size in sizes if isinstance(size, tirx.Var))


class _Both:
    """Walks two functions in parallel and writes one for all lengths."""

    def __init__(self, builder: Any, length: Any) -> None:
        self._builder, self._length = builder, length
        self._new: dict[Any, Any] = {}
        self._constants: dict[tuple[Any, Any], Any] = {}

    def main(self, first: Any, second: Any) -> None:
        for one, other in zip(first.params, second.params, strict=True):
            self._new[one] = relax.Var(one.name, self._type(one.ty, other.ty))
        with self._builder.function("main", list(self._new.values()), dict(first.attrs or {})):
            with self._builder.dataflow():
                pairs = list(zip(_bindings(first), _bindings(second), strict=True))
                for one, other in pairs:
                    value = self._expr(one.value, other.value)
                    self._new[one.var] = self._builder.emit(value, one.var.name)
                result = self._builder.emit_output(self._expr(first.body.body, second.body.body))
            self._builder.emit_func_output(result)

    def _expr(self, one: Any, other: Any) -> Any:
        if type(one) is not type(other):
            raise ValueError("what it computes changes with the length of its caches")
        if isinstance(one, relax.Var):
            return self._new[one]
        if isinstance(one, relax.Call):
            return self._call(one, other)
        if isinstance(one, relax.Tuple):
            return relax.Tuple(self._all(one.fields, other.fields))
        if isinstance(one, relax.TupleGetItem):
            return relax.TupleGetItem(self._expr(one.tuple_value, other.tuple_value), one.index)
        if isinstance(one, relax.ShapeExpr):
            return relax.ShapeExpr(self._sizes(one.values, other.values))
        if isinstance(one, tvm.ir.GenericConst):
            return self._constant(one, other)
        if isinstance(one, tirx.IntImm):
            return one if int(one) == int(other) else self._size(one, other)
        if tvm_ffi.structural_equal(one, other):
            return one
        raise ValueError("what it computes changes with the length of its caches")

    def _all(self, ones: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        return [self._expr(*pair) for pair in zip(ones, others, strict=True)]

    def _call(self, one: Any, other: Any) -> Any:
        is_same_operator = tvm_ffi.structural_equal(one.op, other.op) and tvm_ffi.structural_equal(
            one.attrs, other.attrs
        )
        if not is_same_operator or len(one.args) != len(other.args):
            raise ValueError("what it computes changes with the length of its caches")
        types = [self._type(*pair) for pair in zip(one.ty_args, other.ty_args, strict=True)]
        return relax.Call(one.op, self._all(one.args, other.args), one.attrs, types)

    def _type(self, one: Any, other: Any) -> Any:
        if isinstance(one, relax.TensorType) and one.shape is not None:
            return relax.TensorType(self._sizes(one.shape, other.shape), one.dtype)
        return one

    def _sizes(self, ones: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        return [self._size(*pair) for pair in zip(ones, others, strict=True)]

    def _size(self, one: Any, other: Any) -> Any:
        return _in_terms(self._length, *_line(int(one), int(other)))

    def _constant(self, one: Any, other: Any) -> Any:
        first, second = one.value.numpy(), other.value.numpy()
        if first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            return one
        key = (first.tobytes(), second.tobytes())
        if key not in self._constants:
            compute = partial(self._computed, first, second)
            self._constants[key] = self._builder.emit_te(compute, primfunc_name_hint="follows_length")
        return self._constants[key]

    def _computed(self, first: Any, second: Any) -> Any:
        shape = self._sizes(first.shape, second.shape)
        dtype = str(first.dtype)
        value = _rule_of_constant(first, second, self._length)
        if value is None:
            raise ValueError(
                "it has numbers that follow from the length of its caches, in no way that is known"
            )
        return te.compute(shape, lambda *at: value(at).astype(dtype), name="follows")


def _bindings(function: Any) -> list[Any]:
    blocks = function.body.blocks
    if any(not isinstance(b, relax.VarBinding) for block in blocks for b in block.bindings):
        raise ValueError("its shapes are checked while it runs")
    return [binding for block in blocks for binding in block.bindings]


def _line(one: int, other: int) -> tuple[int, int]:
    """Return by how much a number grows with the length, and its value at length 0."""
    grows, rest = divmod(other - one, LENGTHS[1] - LENGTHS[0])
    if rest:
        raise ValueError("it has sizes that do not grow evenly with the length of its caches")
    return grows, one - grows * LENGTHS[0]


def _in_terms(length: Any, grows: int, least: int) -> Any:
    if not grows:
        return tirx.IntImm("int64", least)
    scaled = length if grows == 1 else length * grows
    return scaled + least if least else scaled


def _affine(first: Any, second: Any) -> tuple[list[int], int, int] | None:
    """Return integers as steps along axes, growth with length and first value; or None."""
    if first.dtype.kind not in "iu" or not first.size:
        return None
    long = second if second.size > first.size else first
    steps = [
        int(np.take(long, 1, axis).flat[0]) - int(long.flat[0]) if n > 1 else 0
        for axis, n in enumerate(long.shape)
    ]
    try:
        grows, first_value = _line(int(first.flat[0]), int(second.flat[0]))
    except ValueError:
        return None
    for each, length in zip((first, second), LENGTHS, strict=True):
        expected = sum(i * by for i, by in zip(np.indices(each.shape), steps, strict=True))
        if not np.array_equal(expected + grows * length + first_value, each):
            return None
    return steps, grows, first_value


def _rule_of_constant(first: Any, second: Any, length: Any) -> Any:
    """Return a function from indices to a constant's numbers, or None if no rule fits."""
    rule = _numbers(first, second, length) or _two_values(first, second, length)
    if rule is not None or not first.shape or not 1 < first.shape[-1] == second.shape[-1] <= MOST_PARTS:
        return rule
    parts = [_rule_of_constant(first[..., n], second[..., n], length) for n in range(first.shape[-1])]
    return None if None in parts else lambda at: _chosen(at, parts)


def _chosen(at: Sequence[Any], parts: Sequence[Any]) -> Any:
    value = parts[-1](at[:-1])
    for number, part in reversed(list(enumerate(parts[:-1]))):
        value = tirx.Select(at[-1] == number, part(at[:-1]), value)
    return value


def _numbers(first: Any, second: Any, length: Any) -> Any:
    """Return the function if numbers are evenly spaced integers, such as positions."""
    affine = _affine(first, second)
    if affine is None:
        return None
    steps, grows, least = affine
    return lambda at: _sum(at, steps) + _in_terms(length, grows, least)


def _two_values(first: Any, second: Any, length: Any) -> Any:
    """Return the function if rows are one value up to an index, then another (masks)."""
    if not first.shape:
        return None
    front = first.flat[0]
    back = next(iter(second[second != front].flat), front)
    counts = [_leading(each, front, back) for each in (first, second)]
    if counts[0] is None or counts[1] is None:
        return None
    constants = [tirx.const(value.item(), str(first.dtype)) for value in (front, back)]
    if front == back:
        return lambda _: constants[0]
    affine = _affine(*counts)
    if affine is None:
        return None
    steps, grows, least = affine
    return lambda at: tirx.Select(at[-1] < _sum(at[:-1], steps) + _in_terms(length, grows, least), *constants)


def _leading(values: Any, front: Any, back: Any) -> Any:
    """Count the leading `front` values of each row; None if other values than `back` follow."""
    is_front = values == front
    counts = is_front.sum(-1)
    expected = np.where(np.arange(values.shape[-1]) < counts[..., None], front, back)
    return counts if np.array_equal(expected, values) else None


def _sum(at: Sequence[Any], steps: Sequence[int]) -> Any:
    total: Any = tirx.const(0, "int64")
    for i, by in zip(at, steps, strict=True):
        total = total + i * by
    return total
