"""Keep indices that a model computes inside of the tensors that they index.

TVM's kernels read and write wherever an index points. ONNX demands that indices are in
range, and onnxruntime refuses others when it runs, so a valid model computes what it did.
"""

from math import prod
from typing import Any, Final

import numpy as np
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Call, GenericConst, Range, TensorLoad, TensorRegion
from tvm.relax.expr_functor import PyExprMutator, mutator

from mallorn.graphc.core.graph_rewriting import collect_nodes

_WRITES: Final = frozenset({"relax.scatter_elements", "relax.scatter_nd"})
_READS: Final = frozenset({"relax.take", "relax.gather_elements", "relax.gather_nd"})
_MOVES: Final = frozenset(
    f"relax.{name}"
    for name in ("astype", "expand_dims", "permute_dims", "reshape", "split", "squeeze", "strided_slice")
)


def bound_indices(mod: Any) -> Any:
    """Return a Relax module in which computed indices, and all that writes use, are clamped."""
    bounding = _Bounding(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            bounding.builder_.update_func(var, bounding.visit_expr(function))
        elif (bounded := clamp_reads(function)) is not function:
            bounding.has_changed = True
            bounding.builder_.update_func(var, bounded)
    return bounding.builder_.get() if bounding.has_changed else mod


@mutator
class _Bounding(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any) -> None:
        super().__init__(mod)
        self.has_changed = False

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name not in _WRITES | _READS:
            return call
        data, indices, *others = call.args
        sizes = _indexed_sizes(name, call, data.ty.shape)
        if sizes is None:
            return call
        lowest, highest = _limits(name, sizes)
        if isinstance(indices, GenericConst):
            numbers = indices.value.numpy()
            if ((numbers < lowest) | (numbers > highest)).any():
                raise ValueError(f"{name.removeprefix('relax.')} has a constant index that is out of range")
            return call
        if name in _READS and self._is_given(indices, min(sizes)):
            return call
        dtype = str(indices.ty.dtype)
        low, high = (relax.const(np.asarray(numbers, dtype), dtype) for numbers in (lowest, highest))
        least = self.builder_.emit(relax.op.maximum(indices, low))
        bounded = self.builder_.emit(relax.op.minimum(least, high))
        self.has_changed = True
        return self.builder_.normalize(Call(call.op, [data, bounded, *others], call.attrs, call.ty_args))

    def _producer(self, value: Any) -> Any:
        while isinstance(value, relax.Var) and (source := self.lookup_binding(value)) is not None:
            value = source
        return value

    def _is_given(self, value: Any, size: int) -> bool:
        """Return whether indices are an input or a constant, at most moved or counted from the end."""
        value = self._producer(value)
        if isinstance(value, relax.TupleGetItem):
            return self._is_given(value.tuple_value, size)
        if isinstance(value, GenericConst):
            return bool(((value.value.numpy() >= 0) & (value.value.numpy() < size)).all())
        if not isinstance(value, Call):
            return isinstance(value, relax.Var)
        name = getattr(value.op, "name", "")
        if name == "relax.where":
            condition, counted, given = map(self._producer, value.args)
            calls = [getattr(getattr(call, "op", None), "name", "") for call in (condition, counted)]
            if calls != ["relax.less", "relax.add"] or not self._is_given(given, size):
                return False
            (less, bound), (negative, count) = (
                map(self._producer, call.args) for call in (condition, counted)
            )
            constants = [part.value.numpy() for part in (bound, count) if isinstance(part, GenericConst)]
            is_counted = len(constants) == 2 and bool(
                (constants[0] <= 0).all() and (constants[1] <= size).all()
            )
            return is_counted and all(self._is_given(part, size) for part in (less, negative))
        if name == "relax.take":  # a column of a table of indices
            return self._is_given(value.args[0], size)
        return name in _MOVES and self._is_given(value.args[0], size)


def _indexed_sizes(name: str, call: Any, shape: Any) -> list[int] | None:
    """Return the sizes of the axes that each index belongs to; None if they are not known."""
    axis = getattr(call.attrs, "axis", None)
    if name in ("relax.scatter_nd", "relax.gather_nd"):
        first = int(getattr(call.attrs, "batch_dims", 0))
        axes = list(shape)[first : first + int(call.args[1].ty.shape[-1])]
    elif axis is None:
        axes = (
            [prod(int(size) for size in shape)] if all(isinstance(s, tirx.IntImm) for s in shape) else [None]
        )
    else:
        axes = [shape[int(axis)]]
    return [int(size) for size in axes] if all(isinstance(s, tirx.IntImm | int) for s in axes) else None


def _limits(name: str, sizes: list[int]) -> tuple[list[int], list[int]]:
    """Return the smallest and largest index of each axis. In scatter_elements, -1 is the last."""
    return [-size if name == "relax.scatter_elements" else 0 for size in sizes], [size - 1 for size in sizes]


def clamp_reads(function: Any) -> Any:
    """Return a tensor function whose reads by numbers in memory are clamped to their buffers."""
    loads = [load for load in collect_nodes(function, TensorLoad) if any(map(_is_read, load.indices))]
    if not loads:
        return function

    def clamp(index: Any, size: Any) -> Any:
        if not _is_read(index):
            return index
        zero = tirx.IntImm(str(index.ty.dtype), 0)
        return tirx.Max(zero, tirx.Min(index, tirx.Cast(str(index.ty.dtype), size - 1)))

    def clamp_load(load: Any) -> Any:
        indices = [clamp(i, size) for i, size in zip(load.indices, load.source.ty.shape, strict=True)]
        return tirx.BufferLoad(load.source, indices)

    def clamp_region(region: Any) -> Any:
        pairs = zip(region.region, region.source.ty.shape, strict=True)
        ranges = [Range.from_min_extent(clamp(axis.min, size), axis.extent) for axis, size in pairs]
        return TensorRegion(region.source, ranges, region.ty)

    return tvm_ffi.structural_map(function, [(TensorLoad, clamp_load), (TensorRegion, clamp_region)])


def _is_read(index: Any) -> bool:
    return str(index.ty.dtype).startswith("int") and bool(collect_nodes(index, TensorLoad))
