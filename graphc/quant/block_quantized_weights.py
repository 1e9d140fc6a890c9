"""Weights of 8 or 4 bits as matrices of bytes, with the scales and zero points of their blocks.

What was imported decodes them by arithmetic: bytes less a zero point, times a scale, each the same along a
block.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphc.core.graph import Graph
from graphc.core.graph_rewriting import permutation, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.quant.quantized_value import BYTES

FEW = 16  # numbers of four bits
_SIGN = 128  # bytes with a sign are moved up by
_PLAIN = "its weights are not decoded from constant bytes"
_UNEVEN = "its weights have scales that no blocks along one axis share"


@dataclass(frozen=True)
class BlockQuantizedWeights:
    """Bytes without a sign, a matrix; scales and zero points of each block and column, or row and block."""

    data: Any
    scale: Any
    zero: Any
    axis: int  # along which blocks lie

    @property
    def transposed(self) -> "BlockQuantizedWeights":
        return BlockQuantizedWeights(self.data.T, self.scale.T, self.zero.T, 1 - self.axis)

    @property
    def moved_down(self) -> "BlockQuantizedWeights":
        """The same with numbers of four bits, if they are so few."""
        low = np.uint8(min(self.data.min(initial=255), self.zero.min(initial=255)))
        few = int(self.data.max(initial=0)) - int(low) < FEW
        return replace(self, data=self.data - low, zero=self.zero - low) if few else self


def block_quantized_weights(matrix: Any, g: Graph) -> BlockQuantizedWeights:
    """What a matrix is decoded from. Raises Leave."""
    if (call := g.producer(matrix, "relax.permute_dims")) is not None:
        found = block_quantized_weights(call.args[0], g)
        return found.transposed if permutation(call) == (1, 0) else found
    if (call := g.producer(matrix, "relax.reshape")) is not None:
        return _joined(call, g)
    return _decoded(matrix, 2, g)


def _joined(call: Any, g: Graph) -> BlockQuantizedWeights:
    """Of three axes: one of the two in front, or behind, counts within a block."""
    found = _decoded(call.args[0], 3, g)
    matrix, sizes, shared = sizes_of(call), found.data.shape, found.scale.shape
    if matrix == (sizes[0] * sizes[1], sizes[2]) and shared[1] == 1:
        axis, shared = 0, (sizes[0], 1, sizes[2])
    elif matrix == (sizes[0], sizes[1] * sizes[2]) and shared[2] == 1:
        axis, shared = 1, (*sizes[:2], 1)
    else:
        raise Leave(_UNEVEN)
    scale, zero = (np.broadcast_to(each, shared).squeeze(axis + 1) for each in (found.scale, found.zero))
    return BlockQuantizedWeights(found.data.reshape(matrix), scale, zero, axis)


def _decoded(value: Any, ndim: int, g: Graph) -> BlockQuantizedWeights:
    """Scale times bytes less zero, as arrays of as many axes."""
    if (coded := g.producer(value, "relax.dequantize")) is not None:
        return _least(*_dequantized(coded, g), ndim)
    product = g.producer(value, "relax.multiply")
    if product is None:
        raise Leave(_PLAIN)
    less = g.producer(product.args[0], "relax.subtract")
    wide = g.producer(product.args[0] if less is None else less.args[0], "relax.astype")
    if wide is None:
        raise Leave(_PLAIN)
    zero = np.zeros(()) if less is None else _array(less.args[1], g)
    return _least(_array(wide.args[0], g), _array(product.args[1], g), zero, ndim)


def _dequantized(call: Any, g: Graph) -> tuple[Any, Any, Any]:
    data, *others = (_array(each, g) for each in call.args)
    axis = int(call.attrs.axis) % data.ndim
    places = [-1 if at == axis else 1 for at in range(data.ndim)]
    scale, zero = (each.reshape(places) if each.ndim else each for each in others)
    return data, scale, zero


def _array(value: Any, g: Graph) -> Any:
    if not g.is_constant(value):
        raise Leave(_PLAIN)
    return g.array(value)


def _least(data: Any, scale: Any, zero: Any, ndim: int) -> BlockQuantizedWeights:
    """With zero points that are bytes and of one shape with the scales: one where an axis has but one."""
    if data.ndim != ndim or str(data.dtype) not in BYTES:
        raise Leave(_PLAIN)
    sign = _SIGN if data.dtype == np.int8 else 0
    places = np.broadcast_shapes((1,) * ndim, scale.shape, zero.shape)
    moved = np.broadcast_to(zero, places).astype("float32") + sign
    if scale.dtype != np.float32 or (moved != np.rint(moved)).any() or moved.min() < 0 or moved.max() > 255:
        raise Leave("its weights have scales that are not float32, or zero points that are no bytes")
    axis = 0
    if ndim == 2:  # nothing lies in blocks: all of a column is one, or all of a row
        axis = int(places[0] != 1)
        if places[axis] != 1:
            raise Leave(_UNEVEN)
        places = (len(data), 1) if axis else (1, data.shape[1])
    scale, moved = (np.ascontiguousarray(np.broadcast_to(each, places)) for each in (scale, moved))
    unsigned = data.view("uint8") ^ np.uint8(sign)
    return BlockQuantizedWeights(unsigned, scale, moved.astype("uint8"), axis)
