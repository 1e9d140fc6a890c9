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
    for name in (
        "astype",
        "expand_dims",
        "permute_dims",
        "reshape",
        "split",
        "squeeze",
        "strided_slice",
        "take",
    )
)


def bound_indices(mod: Any) -> Any:
    """Return a Relax module whose computed indices, and those of writes, are clamped."""
    bounding = _Bounding(mod)
    for var, function in mod.functions_items():
        bound = bounding.visit_expr if isinstance(function, relax.Function) else clamp_reads
        bounding.builder_.update_func(var, bound(function))
    return bounding.builder_.get()


@mutator
class _Bounding(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = _operator(call)
        sizes = _indexed_sizes(call) if name in _WRITES | _READS else []
        if not sizes:
            return call
        data, indices, *operands = call.args
        # In scatter_elements, -1 is the last.
        lowest = [-size if name == "relax.scatter_elements" else 0 for size in sizes]
        highest = [size - 1 for size in sizes]
        is_given = name in _READS and self._is_given(indices, min(sizes))
        if is_given or _has_range(indices, lowest, highest):
            return call
        dtype = str(indices.ty.dtype)
        arrays = (np.asarray(numbers, dtype) for numbers in (lowest, highest))
        low, high = (relax.const(array, dtype) for array in arrays)
        least = self.builder_.emit(relax.op.maximum(indices, low))
        bounded = self.builder_.emit(relax.op.minimum(least, high))
        arguments = [data, bounded, *operands]
        return self.builder_.normalize(Call(call.op, arguments, call.attrs, call.ty_args))

    def _producer(self, value: Any) -> Any:
        while isinstance(value, relax.Var) and (source := self.lookup_binding(value)) is not None:
            value = source
        return value

    def _is_given(self, value: Any, size: int) -> bool:
        """Return whether indices are an input or a constant, moved or counted from the end."""
        match value := self._producer(value):
            case relax.TupleGetItem():
                return self._is_given(value.tuple_value, size)
            case GenericConst():
                return _has_range(value, 0, size - 1)
            case relax.Var():
                return True
            case Call() if _operator(value) == "relax.where":
                less, add, index = map(self._producer, value.args)
                if (_operator(less), _operator(add)) != ("relax.less", "relax.add"):
                    return False
                bound, count = self._producer(less.args[1]), self._producer(add.args[1])
                is_counted = _has_range(bound, -size, 0) and _has_range(count, 0, size)
                sources = index, less.args[0], add.args[0]
                return is_counted and all(self._is_given(source, size) for source in sources)
        return _operator(value) in _MOVES and self._is_given(value.args[0], size)


def _operator(value: Any) -> str:
    return str(getattr(getattr(value, "op", None), "name", ""))


def _has_range(value: Any, lowest: Any, highest: Any) -> bool:
    """Return whether a value is a constant whose numbers lie in a range."""
    numbers = value.value.numpy() if isinstance(value, GenericConst) else np.array(np.nan)
    return bool(((lowest <= numbers) & (numbers <= highest)).all())


def _indexed_sizes(call: Any) -> list[int]:
    """Return the sizes of the axes that each index belongs to; none if they are not known."""
    data, indices, *_ = call.args
    sizes, axis = list(data.ty.shape), getattr(call.attrs, "axis", None)
    if _operator(call).endswith("_nd"):
        first = int(getattr(call.attrs, "batch_dims", 0))
        sizes = sizes[first : first + int(indices.ty.shape[-1])]
    elif axis is not None:
        sizes = [sizes[int(axis)]]
    elif all(isinstance(size, tirx.IntImm) for size in sizes):
        sizes = [tirx.IntImm("int64", prod(map(int, sizes)))]
    is_known = all(isinstance(size, tirx.IntImm) for size in sizes)
    return [int(size) for size in sizes] if is_known else []


def clamp_reads(function: Any) -> Any:
    """Return a tensor function whose reads by numbers in memory are clamped to their buffers."""
    loads = collect_nodes(function, TensorLoad)
    if not any(_is_read(index) for load in loads for index in load.indices):
        return function

    def clamp(index: Any, size: Any) -> Any:
        if not _is_read(index):
            return index
        zero = tirx.IntImm(str(index.ty.dtype), 0)
        return tirx.Max(zero, tirx.Min(index, tirx.Cast(str(index.ty.dtype), size - 1)))

    def clamp_load(load: Any) -> Any:
        pairs = zip(load.indices, load.source.ty.shape, strict=True)
        return tirx.BufferLoad(load.source, [clamp(index, size) for index, size in pairs])

    def clamp_region(region: Any) -> Any:
        pairs = zip(region.region, region.source.ty.shape, strict=True)
        ranges = [Range.from_min_extent(clamp(axis.min, size), axis.extent) for axis, size in pairs]
        return TensorRegion(region.source, ranges, region.ty)

    clamps = [(TensorLoad, clamp_load), (TensorRegion, clamp_region)]
    return tvm_ffi.structural_map(function, clamps)


def _is_read(index: Any) -> bool:
    return str(index.ty.dtype).startswith("int") and bool(collect_nodes(index, TensorLoad))
