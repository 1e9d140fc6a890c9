"""Convert quantised operators to float operators between dequantize and quantize.

`relax.dequantize` and `relax.quantize` mark where numbers are stored in 8 bits. Operators
with integer results become integer products directly. Weights of 8 or 4 bits with a scale
per block are decoded by arithmetic on constants, for KeepBlockQuantizedWeights to recognise.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from mallorn.graphc.convert.node_inputs import constant_array, first_inputs

_BYTE = 8
_NIBBLE = 4


def decode_blocks(builder: Any, data: Any, scale: Any, zero: Any, axis: int) -> Any:
    """Emit decoding of block-quantised weights. Raises ValueError for uneven blocks."""
    size, blocks = data.shape[axis], scale.shape[axis]
    block = -(-size // blocks)
    if block * blocks != size or scale.shape[:axis] != data.shape[:axis]:
        raise ValueError("the blocks of the weights have different sizes")
    op, cut = relax.op, (*data.shape[:axis], blocks, block, *data.shape[axis + 1 :])
    spread = (*scale.shape[: axis + 1], 1, *scale.shape[axis + 1 :])
    numbers = builder.emit(op.astype(relax.const(np.ascontiguousarray(data).reshape(cut)), "float32"))
    if zero is not None and zero.any():
        numbers = builder.emit(op.subtract(numbers, relax.const(zero.astype("float32").reshape(spread))))
    numbers = builder.emit(op.multiply(numbers, relax.const(scale.astype("float32").reshape(spread))))
    return builder.emit(op.reshape(numbers, data.shape))


def convert_block_dequantize_linear(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert DequantizeLinear with blocks. Raises ValueError unless inputs are constant."""
    data, scale, zero = (constant_array(value, params) for value in first_inputs(inputs, 3))
    if data is None or scale is None or (zero is None and first_inputs(inputs, 3)[2] is not None):
        raise ValueError("DequantizeLinear with blocks is supported for constants only")
    axis, block = int(attrs.get("axis", 1)) % data.ndim, int(attrs["block_size"])
    padding = scale.shape[axis] * block - data.shape[axis]
    padded_data = np.pad(data, [(0, padding if dim == axis else 0) for dim in range(data.ndim)])
    numbers = decode_blocks(builder, padded_data, scale, zero, axis)
    if not padding:
        return numbers
    return builder.emit(relax.op.strided_slice(numbers, [axis], [0], [data.shape[axis]]))


def _matmul_nbits(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert MatMulNBits. Raises ValueError unless weights are constants of 4 or 8 bits."""
    x, *constants = first_inputs(inputs, 6)
    values = [constant_array(value, params) for value in constants]
    if any(array is None and value is not None for array, value in zip(values, constants, strict=True)):
        raise ValueError("MatMulNBits needs constant weights")
    weights, scale, zero, order, bias = values
    if weights is None or scale is None:
        raise ValueError("MatMulNBits needs constant weights")
    bits, block = int(attrs.get("bits", _NIBBLE)), int(attrs["block_size"])
    outputs, inputs_ = int(attrs["N"]), int(attrs["K"])
    blocks = -(-inputs_ // block)
    if bits not in (_NIBBLE, _BYTE):
        raise ValueError(f"MatMulNBits has {bits} bits; only 4 and 8 are supported")
    if order is not None and not np.array_equal(order.ravel()[:inputs_], np.arange(inputs_) // block):
        raise ValueError("g_idx reorders the weights: quantise without g_idx")
    numbers = _unpacked(weights.reshape(outputs, -1), bits, blocks * block)
    numbers = np.ascontiguousarray(numbers.reshape(outputs, blocks * block).T)
    scale = scale.reshape(outputs, blocks).T
    # Zero points are packed like weights, or are floats.
    if zero is None:
        zero = np.full((outputs, blocks), 1 << (bits - 1), "float32")
    elif zero.dtype.kind == "u":
        zero = _unpacked(zero.reshape(outputs, -1), bits, blocks)
    zero = zero.reshape(outputs, blocks).T
    padding = blocks * block - inputs_
    dtype = str(x.ty.dtype)
    if padding:
        x = builder.emit(relax.op.nn.pad(x, (*[0] * (2 * int(x.ty.ndim) - 1), padding)))
    if dtype != "float32":
        x = builder.emit(relax.op.astype(x, "float32"))
    result = builder.emit(relax.op.matmul(x, decode_blocks(builder, numbers, scale, zero, 0)))
    if bias is not None:
        result = builder.emit(relax.op.add(result, relax.const(bias.astype("float32"))))
    return result if dtype == "float32" else builder.emit(relax.op.astype(result, dtype))


def _unpacked(rows: Any, bits: int, count: int) -> Any:
    """Unpack the first `count` numbers of each row; a byte's low half comes first."""
    if bits == _BYTE:
        return rows[:, :count]
    return _split_into_nibbles(rows)[:, :count]


def _split_into_nibbles(numbers: Any) -> Any:
    """Split each byte into its two 4-bit numbers, side by side along the last axis."""
    return np.stack([numbers & 0xF, numbers >> _NIBBLE], -1).reshape(*numbers.shape[:-1], -1)


def _convert_gather_block_quantized(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert GatherBlockQuantized. Raises ValueError unless its table is constant."""
    data, indices, scale, zero = first_inputs(inputs, 4)
    table, scales, zeros = (constant_array(value, params) for value in (data, scale, zero))
    bits, axis = int(attrs.get("bits", _NIBBLE)), int(attrs.get("quantize_axis", 1))
    if table is None or scales is None or (zeros is None and zero is not None):
        raise ValueError("GatherBlockQuantized needs a constant table")
    size = scales.shape[axis] * int(attrs.get("block_size", 128))
    is_packed = bits == _NIBBLE and size == 2 * table.shape[axis]  # 4-bit types may also come as bytes
    if is_packed:
        table = _split_into_nibbles(table)
        zeros = None if zeros is None else _split_into_nibbles(zeros)[..., : scales.shape[-1]]
    if size != table.shape[axis]:
        raise ValueError("the blocks of the weights have different sizes")
    if zeros is None and (is_packed or bits == _BYTE):
        zeros = np.full(scales.shape, 1 << (bits - 1), "float32")
    rows = decode_blocks(builder, table, scales, zeros, axis % table.ndim)
    return builder.emit(relax.op.take(rows, indices, int(attrs.get("gather_axis", 0))))


_NEWEST = 99  # opset whose converters also accept older forms
_AFTER_ZERO_POINT = "int16"  # holds a byte minus its zero point


class Node:
    """An ONNX node being converted: emits operators and reads constant inputs as arrays."""

    def __init__(self, builder: Any, attrs: Any, params: Any) -> None:
        self.builder, self.attrs, self.params = builder, dict(attrs), params
        if self.attrs.pop("channels_last", 0):
            raise ValueError("the operator has channels_last=1")

    def emit(self, call: Any) -> Any:
        return self.builder.emit(call)

    def array(self, value: Any) -> Any | None:
        return constant_array(value, self.params)

    def convert(self, kind: str, inputs: Sequence[Any]) -> Any:
        """Emit the float operator `kind` on these inputs, by the importer's converter."""
        convert = onnx_frontend._get_convert_map()[kind].get_converter(_NEWEST)
        result = convert(self.builder, onnx_frontend.onnx_input(inputs), self.attrs, self.params)
        return self.emit(self.builder.normalize(result))

    def squeeze_to_scalar(self, value: Any) -> Any:
        """Return a scale or zero point; a constant with one element becomes a scalar."""
        array = self.array(value)
        if array is not None:
            return relax.const(array.reshape(()) if array.size == 1 else array)
        return value

    def dequantize(self, data: Any, scale: Any, zero: Any, axis: int = 0) -> Any:
        scale = self.squeeze_to_scalar(scale)
        zero = relax.const(np.zeros((), _type(data))) if zero is None else self.squeeze_to_scalar(zero)
        return self.emit(_call_quantize_operator(relax.op.dequantize, data, scale, zero, axis, "float32"))

    def quantize(self, data: Any, scale: Any, zero: Any) -> Any:
        zero = relax.const(np.zeros((), "uint8")) if zero is None else self.squeeze_to_scalar(zero)
        return self.emit(
            _call_quantize_operator(
                relax.op.quantize, data, self.squeeze_to_scalar(scale), zero, 0, _type(zero)
            )
        )

    def subtract_zero_point(self, data: Any, zero: Any, *, is_column: bool = False) -> Any:
        """Subtract a zero point: a scalar, or one per row (column if `is_column`)."""
        zeros, values = self.array(zero), self.array(data)
        if zero is None or (zeros is not None and not zeros.any()):
            return data
        if zeros is not None and values is not None:
            difference = values.astype("int16") - _broadcastable(zeros, is_column)
            fits = difference.min(initial=0) >= -128 and difference.max(initial=0) <= 127
            return relax.const(difference.astype("int8") if fits else difference)
        if zeros is not None:
            zero = relax.const(_broadcastable(zeros, is_column))
        wide = (self.emit(relax.op.astype(value, _AFTER_ZERO_POINT)) for value in (data, zero))
        return self.emit(relax.op.subtract(*wide))


def _call_quantize_operator(make: Any, data: Any, scale: Any, zero: Any, axis: int, dtype: str) -> Any:
    if scale.ty.ndim and not zero.ty.ndim:
        zero = relax.const(np.full([int(size) for size in scale.ty.shape], zero.value.numpy()))
    return make(data, scale, zero, axis=axis, out_dtype=dtype)


def _type(value: Any) -> str:
    return str(value.ty.dtype)


def _broadcastable(zero: Any, is_column: bool) -> Any:
    """Return zero points as int16, shaped to broadcast per row (column if `is_column`)."""
    steps = zero.astype("int16")
    if zero.ndim == 1 < zero.size and not is_column:
        return steps[:, None]
    return steps.reshape(() if zero.size == 1 else zero.shape)


def _convert_quantize_or_dequantize(kind: str, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert QuantizeLinear or DequantizeLinear; with a block size, by `dequantize`."""
    node = Node(builder, attrs, params)
    if kind == "DequantizeLinear" and node.attrs.get("block_size"):
        return convert_block_dequantize_linear(builder, inputs, node.attrs, params)
    data, scale, zero = first_inputs(inputs, 3)
    scale, zero = node.squeeze_to_scalar(scale), None if zero is None else node.squeeze_to_scalar(zero)
    node.attrs.setdefault("axis", 1)
    if not scale.ty.ndim:
        node.attrs["axis"] = 0
    elif zero is None:
        dtype = _type(data) if kind == "DequantizeLinear" else "uint8"
        zero = relax.const(np.zeros([int(size) for size in scale.ty.shape], dtype))
    convert = onnx_frontend._original_convert_map()[kind].get_converter(_NEWEST)
    return convert(builder, onnx_frontend.onnx_input([data, scale, zero]), node.attrs, params)


def _quantize_by_range(node: Node, data: Any) -> tuple[Any, Any, Any]:
    emit, op, number = node.emit, relax.op, partial(relax.const, dtype="float32")
    high = emit(op.maximum(emit(op.max(data)), number(0.0)))
    low = emit(op.minimum(emit(op.min(data)), number(0.0)))
    span = emit(op.divide(emit(op.subtract(high, low)), number(255.0)))
    scale = emit(op.where(emit(op.equal(span, number(0.0))), number(1.0), span))
    zero = emit(op.round(emit(op.divide(emit(op.negative(low)), scale))))
    quantized = emit(op.add(emit(op.round(emit(op.divide(data, scale)))), zero))
    return _clip_to_uint8(node, quantized), scale, _clip_to_uint8(node, zero)


def _clip_to_uint8(node: Node, value: Any) -> Any:
    # Layout changes pass through these operators, but not through a clip.
    value = node.emit(relax.op.maximum(value, relax.const(0.0, "float32")))
    value = node.emit(relax.op.minimum(value, relax.const(255.0, "float32")))
    return node.emit(relax.op.astype(value, "uint8"))


def _conv(node: Node, *inputs: Any) -> Any:
    """Convert QLinearConv; the scale of its integer bias is data scale * weight scale."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs
    factors = [node.dequantize(x, x_scale, x_zero), node.dequantize(w, w_scale, w_zero)]
    if bias is not None:
        factors.append(node.dequantize(bias, relax.const(_product(node, x_scale, w_scale)), None))
    return node.quantize(node.convert("Conv", factors), y_scale, y_zero)


def _product(node: Node, *scales: Any) -> Any:
    """Return the product of two scales. Raises ValueError if one is not constant."""
    of_data, of_weights = (node.array(scale) for scale in scales)
    if of_data is None or of_weights is None:
        raise ValueError("the scales of data and weights must be constants")
    scale = of_data.reshape(-1) * of_weights.reshape(-1)
    return (scale.reshape(()) if scale.size == 1 else scale).astype("float32")


def _matmul(node: Node, *inputs: Any) -> Any:
    """Convert QLinearMatMul with one scale per tensor, or one per column of the weights."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
    left, right = node.dequantize(a, a_scale, a_zero), node.dequantize(b, b_scale, b_zero, _last_axis(b))
    return node.quantize(node.emit(relax.op.matmul(left, right)), y_scale, y_zero)


def _last_axis(value: Any) -> int:
    return int(value.ty.ndim) - 1


def _gemm(node: Node, *inputs: Any) -> Any:
    """Convert QGemm; if it has no scale for the output, its result stays float."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = inputs
    alpha, across = float(node.attrs.get("alpha", 1.0)), int(not node.attrs.get("transB", 0))
    factors = [node.dequantize(a, a_scale, a_zero), node.dequantize(b, b_scale, b_zero, across)]
    if c is not None:
        scale = _product(node, a_scale, b_scale) * np.float32(alpha)
        factors.append(node.dequantize(c, relax.const(scale), None, _last_axis(c)))
    result = node.convert("Gemm", factors)
    return result if y_scale is None else node.quantize(result, y_scale, y_zero)


def _unary(kind: str, node: Node, *inputs: Any) -> Any:
    """Convert a unary QLinear operator; the float `kind` reads dequantized data."""
    node.attrs.pop("opset", None)
    x, x_scale, x_zero, y_scale, y_zero = inputs
    return node.quantize(node.convert(kind, [node.dequantize(x, x_scale, x_zero)]), y_scale, y_zero)


def _binary(kind: str, node: Node, *inputs: Any) -> Any:
    factors = node.dequantize(*inputs[:3]), node.dequantize(*inputs[3:6])
    return node.quantize(node.convert(kind, factors), *inputs[6:])


def _concat(node: Node, scale: Any, zero: Any, *triples: Any) -> Any:
    parts = [node.dequantize(*triples[start : start + 3]) for start in range(0, len(triples), 3)]
    return node.quantize(node.convert("Concat", parts), scale, zero)


def _where(node: Node, condition: Any, *inputs: Any) -> Any:
    factors = condition, node.dequantize(*inputs[:3]), node.dequantize(*inputs[3:6])
    return node.quantize(node.convert("Where", factors), *inputs[6:])


def _integer_matmul(node: Node, a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    left, right = node.subtract_zero_point(a, a_zero), node.subtract_zero_point(b, b_zero, is_column=True)
    return node.emit(relax.op.matmul(left, right, out_dtype="int32"))


def _conv_integer(node: Node, x: Any, w: Any, x_zero: Any, w_zero: Any) -> Any:
    """Convert ConvInteger. TVM's convolution sums in its operands' type: int32, or float32
    for channels in groups, which no integer instruction sums, where that is exact."""
    if w_zero is not None and w_zero.ty.ndim and int(w_zero.ty.shape[0]) != 1:
        # One zero point per output: reshape them so that they broadcast along outputs.
        shape, zeros = (-1, *[1] * _last_axis(w)), node.array(w_zero)
        if zeros is None:
            w_zero = node.emit(relax.op.reshape(w_zero, shape))
        else:
            w_zero = relax.const(zeros.reshape(shape))
    factors = node.subtract_zero_point(x, x_zero), node.subtract_zero_point(w, w_zero)
    is_exact = np.prod([int(size) for size in w.ty.shape][1:]) * 255**2 < 2**24
    dtype = "float32" if int(node.attrs.get("group", 1)) > 1 and is_exact else "int32"
    sums = node.convert("Conv", [node.emit(relax.op.astype(factor, dtype)) for factor in factors])
    return sums if dtype == "int32" else node.emit(relax.op.astype(sums, "int32"))


def _integer_matmul_to_float(node: Node, *inputs: Any) -> Any:
    """Convert MatMulIntegerToFloat: an int32 matmul, then scales and an optional bias."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs
    return _scale_integer_sums(node, _integer_matmul(node, a, b, a_zero, b_zero), a_scale, b_scale, bias)


def _scale_integer_sums(node: Node, sums: Any, a_scale: Any, b_scale: Any, bias: Any | None) -> Any:
    scale = node.emit(relax.op.multiply(node.squeeze_to_scalar(a_scale), node.squeeze_to_scalar(b_scale)))
    result = node.emit(relax.op.multiply(node.emit(relax.op.astype(sums, "float32")), scale))
    return result if bias is None else node.emit(relax.op.add(result, bias))


def _dynamic_matmul(node: Node, a: Any, b: Any, b_scale: Any, b_zero: Any, bias: Any) -> Any:
    """Convert DynamicQuantizeMatMul, which quantises the data by its range at run time."""
    data, a_scale, a_zero = _quantize_by_range(node, a)
    return _scale_integer_sums(node, _integer_matmul(node, data, b, a_zero, b_zero), a_scale, b_scale, bias)


def _attention(node: Node, *inputs: Any) -> Any:
    """Convert QAttention: dequantize input and weights, then convert float Attention."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = inputs
    for name in ("unidirectional", "do_rotary", "past_present_share_buffer"):
        if node.attrs.get(name) == 0:
            del node.attrs[name]
    factors = node.dequantize(x, x_scale, x_zero), node.dequantize(w, w_scale, w_zero, 1)
    return node.convert("Attention", [*factors, bias, mask, past])


def _with_node(convert: Callable[..., Any], count: int | None = None) -> Callable[..., Any]:
    """Return a converter that calls `convert` with a Node and its first `count` inputs (or all)."""
    return lambda builder, inputs, attrs, params: convert(
        Node(builder, attrs, params), *first_inputs(inputs, count or len(inputs))
    )


CONVERTERS: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    "QuantizeLinear": partial(_convert_quantize_or_dequantize, "QuantizeLinear"),
    "DequantizeLinear": partial(_convert_quantize_or_dequantize, "DequantizeLinear"),
    "DynamicQuantizeLinear": _with_node(lambda node, data: relax.Tuple(_quantize_by_range(node, data)), 1),
    "QLinearConv": _with_node(_conv, 9),
    "QLinearMatMul": _with_node(_matmul, 8),
    "QGemm": _with_node(_gemm, 9),
    "QLinearConcat": _with_node(_concat),
    "QLinearWhere": _with_node(_where, 9),
    "QLinearAdd": _with_node(partial(_binary, "Add"), 8),
    "QLinearMul": _with_node(partial(_binary, "Mul"), 8),
    "QLinearSigmoid": _with_node(partial(_unary, "Sigmoid"), 5),
    "QLinearLeakyRelu": _with_node(partial(_unary, "LeakyRelu"), 5),
    "QLinearSoftmax": _with_node(partial(_unary, "Softmax"), 5),
    "QLinearAveragePool": _with_node(partial(_unary, "AveragePool"), 5),
    "QLinearGlobalAveragePool": _with_node(partial(_unary, "GlobalAveragePool"), 5),
    "MatMulInteger": _with_node(_integer_matmul, 4),
    "ConvInteger": _with_node(_conv_integer, 4),
    "MatMulIntegerToFloat": _with_node(_integer_matmul_to_float, 7),
    "DynamicQuantizeMatMul": _with_node(_dynamic_matmul, 5),
    "QAttention": _with_node(_attention, 9),
    "MatMulNBits": _matmul_nbits,
    "GatherBlockQuantized": _convert_gather_block_quantized,
}
