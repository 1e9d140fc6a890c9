"""Products with constant weights of 8 or 4 bits read the weights as they are, scales beside them.

What was imported decodes them by arithmetic: bytes less a zero point, times a scale, each the same along a
block. Rows of a table that are looked up are decoded behind the look-up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from graphc.core import graph_rewriting
from graphc.quant import block_quantized_matmul_function, llvm_byte_dot_products

_BYTES = ("int8", "uint8")
FEW = 16  # numbers of four bits
_SIGN = 128  # bytes with a sign are moved up by
_LONGEST, _LONG, _STEP = 256, 128, 8  # of blocks: what is summed at once, and what is read at once


@dataclass(frozen=True)
class Stored:
    """Bytes without a sign, a matrix; scales and zero points of each block and column, or row and block."""

    data: Any
    scale: Any
    zero: Any
    axis: int  # along which blocks lie

    @property
    def transposed(self) -> "Stored":
        return Stored(self.data.T, self.scale.T, self.zero.T, 1 - self.axis)


def blocked() -> Any:
    """The pass; where the target has no instruction for it, weights become real numbers."""
    return graph_rewriting.graph_pass("Blocked", _rewrite)


def _rewrite(builder: Any, graph: Any) -> Any:
    by = llvm_byte_dot_products.instruction()
    if by is None:
        return graph
    values = relax.analysis.get_var2val(graph)

    def product(call: Any) -> Any:
        bytes_ = graph_rewriting.call_of(values, call.args[0], "relax.dequantize") is not None
        stored = _stored(values, call.args[1]) if _multiplies(call, by) and not bytes_ else None
        return call if stored is None else _product(builder, by, call, stored)

    graph = graph_rewriting.rewrite_known(graph, "relax.matmul", product)
    return graph_rewriting.rewrite_known(graph, "relax.take", lambda call: _rows(values, call))


def _multiplies(call: Any, by: Any) -> bool:
    data, weights = call.args
    real = {str(each.ty.dtype) for each in (data, weights, call)} == {"float32"}
    return bool(
        real
        and weights.ty.ndim == 2 <= data.ty.ndim
        and graph_rewriting.mostly_whole(int(call.ty.shape[-1]), by.lanes)
    )


def _stored(values: Mapping[Any, Any], value: Any) -> Stored | None:
    """What a matrix is decoded from."""
    if (call := graph_rewriting.call_of(values, value, "relax.permute_dims")) is not None:
        found = _stored(values, call.args[0]) if call.ty.ndim == 2 else None
        return None if found is None else found.transposed
    if (call := graph_rewriting.call_of(values, value, "relax.reshape")) is not None:
        return _matrix(values, call)
    return _decoded(values, value, value.ty.ndim) if value.ty.ndim == 2 else None


def _matrix(values: Mapping[Any, Any], call: Any) -> Stored | None:
    """Of three axes: one of the two in front, or behind, counts within a block."""
    found = _decoded(values, call.args[0], 3)
    if found is None or found.data.ndim != 3:
        return None
    rows, columns = graph_rewriting.sizes_of(call)
    sizes = found.data.shape
    if (rows, columns) == (sizes[0] * sizes[1], sizes[2]) and found.scale.shape[1] == 1:
        axis, least = 0, (sizes[0], columns)
    elif (rows, columns) == (sizes[0], sizes[1] * sizes[2]) and found.scale.shape[2] == 1:
        axis, least = 1, (rows, sizes[1])
    else:
        return None
    scale, zero = (each.reshape(least) for each in (found.scale, found.zero))
    return Stored(found.data.reshape(rows, columns), scale, zero, axis)


def _decoded(values: Mapping[Any, Any], value: Any, ndim: int) -> Stored | None:
    """Scale times bytes less zero, as arrays of as many axes."""
    if (coded := graph_rewriting.call_of(values, value, "relax.dequantize")) is not None:
        return _dequantized(coded)
    product = graph_rewriting.call_of(values, value, "relax.multiply")
    scale = None if product is None else _array(product.args[1])
    if product is None or scale is None:
        return None
    less = graph_rewriting.call_of(values, product.args[0], "relax.subtract")
    zero = np.zeros(()) if less is None else _array(less.args[1])
    wide = graph_rewriting.call_of(values, product.args[0] if less is None else less.args[0], "relax.astype")
    data = None if wide is None else _array(wide.args[0])
    if data is None or zero is None or data.ndim != ndim or str(data.dtype) not in _BYTES:
        return None
    return _least(data, scale, zero)


def _dequantized(call: Any) -> Stored | None:
    arrays = [_array(each) for each in call.args]
    if any(each is None for each in arrays) or call.ty.ndim != 2 or call.ty.dtype != "float32":
        return None
    data, scale, zero = map(np.asarray, arrays)
    axis = int(call.attrs.axis) % data.ndim
    places = [-1 if at == axis else 1 for at in range(data.ndim)]
    scale, zero = (each.reshape(places) if each.ndim else each for each in (scale, zero))
    return _least(data, scale, zero) if str(data.dtype) in _BYTES else None


def _least(data: Any, scale: Any, zero: Any) -> Stored | None:
    """With zero points that are bytes and of one shape with the scales: one where an axis has but one."""
    sign = _SIGN if data.dtype == np.int8 else 0
    places = [max(sizes) for sizes in zip(*(_sizes(each, data.ndim) for each in (scale, zero)), strict=True)]
    moved = np.broadcast_to(zero, places).astype("float32") + sign
    if scale.dtype != np.float32 or (moved != np.rint(moved)).any() or moved.min() < 0 or moved.max() > 255:
        return None
    axis = 0
    if data.ndim == 2:  # nothing lies in blocks: all of a column is one, or all of a row
        axis = int(places[0] != 1)
        if places[axis] != 1:
            return None
        places = [data.shape[0], 1] if axis else [1, data.shape[1]]
    return Stored(
        _unsigned(data),
        np.ascontiguousarray(np.broadcast_to(scale, places)),
        np.ascontiguousarray(np.broadcast_to(moved, places).astype("uint8")),
        axis,
    )


def _unsigned(data: Any) -> Any:
    return data if data.dtype == np.uint8 else (data.view("uint8") ^ np.uint8(_SIGN))


def _sizes(array: Any, ndim: int) -> tuple[int, ...]:
    return (*[1] * (ndim - array.ndim), *map(int, array.shape))


def _array(value: Any) -> Any | None:
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def _product(builder: Any, by: Any, call: Any, stored: Stored) -> Any:
    """Rows with the weights, packed; inputs that are no whole blocks are filled up."""
    if stored.axis:
        return call
    inputs, outputs = stored.data.shape
    block = inputs // len(stored.scale)
    if len(stored.scale) == 1 or block > _LONGEST:
        block = min(_LONG, graph_rewriting.whole_vectors(block, _STEP))
    if block % _STEP or (len(stored.scale) > 1 and inputs // len(stored.scale) % block):
        return call
    data, missing = call.args[0], -inputs % block
    if missing:
        data = relax.op.nn.pad(data, (*[0] * (2 * data.ty.ndim - 1), missing))
    stored = _moved_down(stored)
    bits = 4 if stored.data.max(initial=0) < FEW else 8
    split = np.pad(stored.data, [(0, missing), (0, 0)]).reshape(-1, block, outputs)
    scale, zero = (_repeated(each, len(split)) for each in (stored.scale, stored.zero))
    same = int(zero.flat[0]) if (zero == zero.flat[0]).all() else None
    rows = graph_rewriting.sizes_of(call)[:-1]
    product = block_quantized_matmul_function.Product(by, rows, outputs, len(split), block, bits, same)
    constants = [
        block_quantized_matmul_function.packed(product, split),
        block_quantized_matmul_function.beside(product, scale),
    ]
    constants += [] if same is not None else [block_quantized_matmul_function.beside(product, zero)]
    function = builder.add_func(block_quantized_matmul_function.function(product), f"int{bits}_blocks")
    given = [data, *(relax.const(each) for each in constants)]
    return relax.call_tir(function, given, relax.TensorType((*rows, outputs), "float32"))


def _repeated(numbers: Any, blocks_: int) -> Any:
    return np.repeat(numbers, blocks_ // len(numbers), 0)


def _moved_down(stored: Stored) -> Stored:
    """The same with numbers of four bits, if they are so few."""
    low = np.uint8(min(stored.data.min(initial=255), stored.zero.min(initial=255)))
    few = int(stored.data.max(initial=0)) - int(low) < FEW
    return replace(stored, data=stored.data - low, zero=stored.zero - low) if few else stored


def _rows(values: Mapping[Any, Any], call: Any) -> Any:
    """Rows of a table, decoded once they are looked up."""
    table, places = call.args
    stored = _stored(values, table) if table.ty.ndim == 2 and str(table.ty.dtype) == "float32" else None
    if stored is None or call.attrs.axis is None or int(call.attrs.axis) % 2:
        return call
    stored = _moved_down(stored)
    op, columns = relax.op, stored.data.shape[1]
    sizes = graph_rewriting.sizes_of(places)
    if stored.axis == 1:
        scale, zero = (op.take(relax.const(each), places, 0) for each in (stored.scale, stored.zero))
    elif len(stored.scale) == 1:
        scale, zero = (relax.const(each) for each in (stored.scale, stored.zero))
    else:
        return call
    split = (*sizes, stored.scale.shape[1], columns // stored.scale.shape[1])
    each = (*split[:-1], 1) if stored.axis else (*[1] * len(sizes), columns, 1)
    real = op.astype(op.reshape(_looked_up(stored.data, places), split), "float32")
    real = op.subtract(real, op.reshape(op.astype(zero, "float32"), each))
    return op.reshape(op.multiply(real, op.reshape(scale, each)), (*sizes, columns))


def _looked_up(table: Any, places: Any) -> Any:
    """Rows of a table of bytes; small numbers are kept two in a byte, those of a row's halves together."""
    op, half = relax.op, table.shape[1] // 2
    if table.max(initial=0) >= FEW or table.shape[1] % 2:
        return op.take(relax.const(table), places, 0)
    both = op.take(relax.const(table[:, :half] | (table[:, half:] << 4)), places, 0)
    lower = op.bitwise_and(both, relax.const(np.uint8(FEW - 1)))
    return op.concat([lower, op.right_shift(both, relax.const(np.uint8(4)))], axis=-1)
