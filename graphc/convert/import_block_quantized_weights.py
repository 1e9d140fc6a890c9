"""Convert operators with 8- or 4-bit weights that have a scale per block.

Weights are decoded by arithmetic on constants, which KeepBlockQuantizedWeights matches later.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from graphc.convert.node_inputs import array_of, padded

_BYTE = 8
_NIBBLE = 4


def decoded(builder: Any, data: Any, scale: Any, zero: Any, axis: int) -> Any:
    """Decode bytes with a scale and zero point per block. Raises ValueError if uneven."""
    size, blocks = data.shape[axis], scale.shape[axis]
    block = -(-size // blocks)
    if block * blocks != size or scale.shape[:axis] != data.shape[:axis]:
        raise ValueError("its blocks are not of one size")
    op, cut = relax.op, (*data.shape[:axis], blocks, block, *data.shape[axis + 1 :])
    spread = (*scale.shape[: axis + 1], 1, *scale.shape[axis + 1 :])
    numbers = builder.emit(op.astype(relax.const(np.ascontiguousarray(data).reshape(cut)), "float32"))
    if zero is not None and zero.any():
        numbers = builder.emit(op.subtract(numbers, relax.const(zero.astype("float32").reshape(spread))))
    numbers = builder.emit(op.multiply(numbers, relax.const(scale.astype("float32").reshape(spread))))
    return builder.emit(op.reshape(numbers, data.shape))


def dequantize(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert a blocked DequantizeLinear. Raises ValueError unless its inputs are constant."""
    data, scale, zero = (array_of(value, params) for value in padded(inputs, 3))
    if data is None or scale is None or (zero is None and padded(inputs, 3)[2] is not None):
        raise ValueError("it decodes blocks of what is computed: only constants have blocks")
    axis, block = int(attrs.get("axis", 1)) % data.ndim, int(attrs["block_size"])
    missing = scale.shape[axis] * block - data.shape[axis]
    padded_data = np.pad(data, [(0, missing if at == axis else 0) for at in range(data.ndim)])
    numbers = decoded(builder, padded_data, scale, zero, axis)
    if not missing:
        return numbers
    return builder.emit(relax.op.strided_slice(numbers, [axis], [0], [data.shape[axis]]))


def _matmul(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert MatMulNBits. Raises ValueError unless weights are constant, of 4 or 8 bits."""
    x, *constants = padded(inputs, 6)
    values = [array_of(value, params) for value in constants]
    if any(array is None and value is not None for array, value in zip(values, constants, strict=True)):
        raise ValueError("its weights are not constant")
    weights, scale, zero, order, bias = values
    if weights is None or scale is None:
        raise ValueError("its weights are not constant")
    bits, block = int(attrs.get("bits", _NIBBLE)), int(attrs["block_size"])
    outputs, inputs_ = int(attrs["N"]), int(attrs["K"])
    blocks = -(-inputs_ // block)
    if bits not in (_NIBBLE, _BYTE):
        raise ValueError(f"its weights are of {bits} bits: 4 and 8 are taken")
    if order is not None and not np.array_equal(order.ravel()[:inputs_], np.arange(inputs_) // block):
        raise ValueError("its weights are in another order (g_idx): quantise the model without")
    numbers = _unpacked(weights.reshape(outputs, -1), bits, blocks * block)
    numbers = np.ascontiguousarray(numbers.reshape(outputs, blocks * block).T)
    scale = scale.reshape(outputs, blocks).T
    zero = _zeros(zero, bits, outputs, blocks)
    missing = blocks * block - inputs_
    dtype = str(x.ty.dtype)
    if missing:
        x = builder.emit(relax.op.nn.pad(x, (*[0] * (2 * int(x.ty.ndim) - 1), missing)))
    if dtype != "float32":
        x = builder.emit(relax.op.astype(x, "float32"))
    result = builder.emit(relax.op.matmul(x, decoded(builder, numbers, scale, zero, 0)))
    if bias is not None:
        result = builder.emit(relax.op.add(result, relax.const(bias.astype("float32"))))
    return result if dtype == "float32" else builder.emit(relax.op.astype(result, dtype))


def _zeros(zero: Any, bits: int, outputs: int, blocks: int) -> Any:
    """Return zero points as [blocks, outputs]; they are packed like weights, or are floats."""
    if zero is None:
        return np.full((blocks, outputs), 1 << (bits - 1), "float32")
    if zero.dtype.kind == "u":
        zero = _unpacked(zero.reshape(outputs, -1), bits, blocks)
    return zero.reshape(outputs, blocks).T


def _unpacked(rows: Any, bits: int, count: int) -> Any:
    """Return the first `count` numbers in each row; 4-bit numbers begin with the lower half."""
    if bits == _BYTE:
        return rows[:, :count]
    return _halves(rows)[:, :count]


def _halves(numbers: Any) -> Any:
    """Split each byte into two numbers, adjacent along the last axis."""
    return np.stack([numbers & 0xF, numbers >> _NIBBLE], -1).reshape(*numbers.shape[:-1], -1)


def _gather(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert GatherBlockQuantized. Raises ValueError unless its table is constant."""
    data, indices, scale, zero = padded(inputs, 4)
    table, scales, zeros = (array_of(value, params) for value in (data, scale, zero))
    bits, axis = int(attrs.get("bits", _NIBBLE)), int(attrs.get("quantize_axis", 1))
    if table is None or scales is None or (zeros is None and zero is not None):
        raise ValueError("its table is not constant")
    size = scales.shape[axis] * int(attrs.get("block_size", 128))
    packed = bits == _NIBBLE and size == 2 * table.shape[axis]  # 4-bit types may also come as bytes
    if packed:
        table = _halves(table)
        zeros = None if zeros is None else _halves(zeros)[..., : scales.shape[-1]]
    if size != table.shape[axis]:
        raise ValueError("its blocks are not of one size")
    if zeros is None and (packed or bits == _BYTE):
        zeros = np.full(scales.shape, 1 << (bits - 1), "float32")
    rows = decoded(builder, table, scales, zeros, axis % table.ndim)
    return builder.emit(relax.op.take(rows, indices, int(attrs.get("gather_axis", 0))))


CONVERTERS: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    "MatMulNBits": _matmul,
    "GatherBlockQuantized": _gather,
}
