"""Build one module for all lengths of a dimension that grows, such as a cache's.

TVM's importer needs known shapes. So the network is imported at two lengths, and sizes and
constants that differ between the two modules become functions of the length.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from mallorn.graphc.attention.fuse_cached_attention import FuseCachedAttention, VectorizeCacheConcat

# Two lengths that are unlikely to occur as other sizes of a network; 1 would be broadcast.
LENGTHS = (11, 18)
MOST_PARTS = 8  # most columns of a constant that are generalised separately


def generalize(first: Any, second: Any = None, name: str = "") -> Any:
    """Return a module for every length, from modules at two lengths; or `first` if alone.

    Raises ValueError if they differ in a way that no function of the length explains.
    """
    if second is None:
        return first
    builder, length = relax.BlockBuilder(tvm.IRModule()), tirx.Var(name, "int64")
    _Both(builder, length).merge_main(first["main"], second["main"])
    mod = relax.transform.Normalize()(builder.finalize())
    for pass_class in (FuseCachedAttention, VectorizeCacheConcat):
        mod = pass_class(length, LENGTHS[0])(mod)
    return relax.transform.DeadCodeElimination()(mod)


def length_of(mod: Any) -> Any:
    """Return the variable that stands for the growing length in the module's inputs."""
    sizes = [size for param in mod["main"].params for size in param.ty.shape]
    return next(size for size in sizes if isinstance(size, tirx.Var))


class _Both:
    """Walks the functions of both lengths in parallel, and writes one for all lengths."""

    def __init__(self, builder: Any, length: Any) -> None:
        self._builder, self._length = builder, length
        self._new: dict[Any, Any] = {}
        self._constants: dict[tuple[Any, Any], Any] = {}

    def merge_main(self, first: Any, second: Any) -> None:
        for left, right in zip(first.params, second.params, strict=True):
            self._new[left] = relax.Var(left.name, self._merge_type(left.ty, right.ty))
        with self._builder.function("main", list(self._new.values()), dict(first.attrs or {})):
            with self._builder.dataflow():
                pairs = list(zip(_bindings(first), _bindings(second), strict=True))
                for left, right in pairs:
                    value = self._merge_expression(left.value, right.value)
                    self._new[left.var] = self._builder.emit(value, left.var.name)
                result = self._builder.emit_output(self._merge_expression(first.body.body, second.body.body))
            self._builder.emit_func_output(result)

    def _merge_expression(self, left: Any, right: Any) -> Any:
        if type(left) is not type(right):
            raise ValueError("the model computes with other operators if the dimension has another length")
        if isinstance(left, relax.Var):
            return self._new[left]
        if isinstance(left, relax.Call):
            is_same_operator = tvm_ffi.structural_equal(left.op, right.op) and tvm_ffi.structural_equal(
                left.attrs, right.attrs
            )
            if not is_same_operator or len(left.args) != len(right.args):
                raise ValueError("an operator changes with the length of the dimension")
            types = [self._merge_type(*pair) for pair in zip(left.ty_args, right.ty_args, strict=True)]
            return relax.Call(left.op, self._merge_expressions(left.args, right.args), left.attrs, types)
        if isinstance(left, relax.Tuple):
            return relax.Tuple(self._merge_expressions(left.fields, right.fields))
        if isinstance(left, relax.TupleGetItem):
            return relax.TupleGetItem(self._merge_expression(left.tuple_value, right.tuple_value), left.index)
        if isinstance(left, relax.ShapeExpr):
            return relax.ShapeExpr(self._merge_sizes(left.values, right.values))
        if isinstance(left, tvm.ir.GenericConst):
            return self._merge_constant(left, right)
        if isinstance(left, tirx.IntImm):
            return left if int(left) == int(right) else self._merge_size(left, right)
        if tvm_ffi.structural_equal(left, right):
            return left
        raise ValueError("an operator changes with the length of the dimension")

    def _merge_expressions(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return [self._merge_expression(*pair) for pair in zip(left, right, strict=True)]

    def _merge_type(self, left: Any, right: Any) -> Any:
        if isinstance(left, relax.TensorType) and left.shape is not None:
            return relax.TensorType(self._merge_sizes(left.shape, right.shape), left.dtype)
        return left

    def _merge_sizes(self, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        return [self._merge_size(*pair) for pair in zip(left, right, strict=True)]

    def _merge_size(self, left: Any, right: Any) -> Any:
        return _express_by_length(self._length, *_fit_line(int(left), int(right)))

    def _merge_constant(self, left: Any, right: Any) -> Any:
        first, second = left.value.numpy(), right.value.numpy()
        if first.shape == second.shape and np.array_equal(first, second, equal_nan=first.dtype.kind == "f"):
            return left
        key = (first.tobytes(), second.tobytes())
        if key not in self._constants:

            def compute() -> Any:
                shape = self._merge_sizes(first.shape, second.shape)
                value = _rule_of_constant(first, second, self._length)
                if value is None:
                    raise ValueError("a constant changes with the dimension by no known rule")
                dtype = str(first.dtype)
                return te.compute(shape, lambda *indices: value(indices).astype(dtype), name="follows")

            self._constants[key] = self._builder.emit_te(compute, primfunc_name_hint="follows_length")
        return self._constants[key]


def _bindings(function: Any) -> list[Any]:
    blocks = function.body.blocks
    if any(not isinstance(b, relax.VarBinding) for block in blocks for b in block.bindings):
        raise ValueError("the model checks shapes while running")
    return [binding for block in blocks for binding in block.bindings]


def _fit_line(first: int, second: int) -> tuple[int, int]:
    """Return a number's growth per unit of length and value at 0. Raises ValueError."""
    grows, remainder = divmod(second - first, LENGTHS[1] - LENGTHS[0])
    if remainder:
        raise ValueError("a size does not grow by a fixed step with the dimension")
    return grows, first - grows * LENGTHS[0]


def _express_by_length(length: Any, grows: int, least: int) -> Any:
    if not grows:
        return tirx.IntImm("int64", least)
    scaled = length if grows == 1 else length * grows
    return scaled + least if least else scaled


def _affine(first: Any, second: Any) -> tuple[list[int], int, int] | None:
    """Fit integers by a first value, steps along axes and growth with length, else None."""
    if first.dtype.kind not in "iu" or not first.size:
        return None
    long = second if second.size > first.size else first
    steps = [
        int(np.take(long, 1, axis).flat[0]) - int(long.flat[0]) if n > 1 else 0
        for axis, n in enumerate(long.shape)
    ]
    try:
        grows, first_value = _fit_line(int(first.flat[0]), int(second.flat[0]))
    except ValueError:
        return None
    for array, length in zip((first, second), LENGTHS, strict=True):
        offsets = sum(i * step for i, step in zip(np.indices(array.shape), steps, strict=True))
        if not np.array_equal(offsets + grows * length + first_value, array):
            return None
    return steps, grows, first_value


def _rule_of_constant(first: Any, second: Any, length: Any) -> Any:
    """Return a function from indices to a constant's numbers, or None if no rule fits."""
    affine = _affine(first, second)
    if affine is not None:  # evenly spaced integers, such as positions
        steps, grows, least = affine
        return lambda indices: _sum(indices, steps) + _express_by_length(length, grows, least)
    rule = _fit_two_valued_mask(first, second, length)
    if rule is not None or not first.shape or not 1 < first.shape[-1] == second.shape[-1] <= MOST_PARTS:
        return rule
    parts = [_rule_of_constant(first[..., n], second[..., n], length) for n in range(first.shape[-1])]
    if None in parts:
        return None

    def select_part(indices: Sequence[Any]) -> Any:
        value = parts[-1](indices[:-1])
        for number, part in reversed(list(enumerate(parts[:-1]))):
            value = tirx.Select(indices[-1] == number, part(indices[:-1]), value)
        return value

    return select_part


def _fit_two_valued_mask(first: Any, second: Any, length: Any) -> Any:
    """Return a function for a mask (one value up to an index, then another), or None."""
    if not first.shape:
        return None
    front = first.flat[0]
    back = next(iter(second[second != front].flat), front)
    counts = []  # leading `front` values of each row; only `back` may follow
    for values in (first, second):
        counts.append((values == front).sum(-1))
        pattern = np.where(np.arange(values.shape[-1]) < counts[-1][..., None], front, back)
        if not np.array_equal(pattern, values):
            return None
    constants = [tirx.const(value.item(), str(first.dtype)) for value in (front, back)]
    if front == back:
        return lambda _: constants[0]
    affine = _affine(counts[0], counts[1])
    if affine is None:
        return None
    steps, grows, least = affine

    def select(indices: Sequence[Any]) -> Any:
        count = _sum(indices[:-1], steps) + _express_by_length(length, grows, least)
        return tirx.Select(indices[-1] < count, constants[0], constants[1])

    return select


def _sum(indices: Sequence[Any], steps: Sequence[int]) -> Any:
    total: Any = tirx.const(0, "int64")
    for i, step in zip(indices, steps, strict=True):
        total = total + i * step
    return total
