"""Quantised operators of ONNX and onnxruntime, as operators of real numbers between decoding and encoding.

`relax.dequantize` and `relax.quantize` mark where numbers are stored in 8 bits. Products that ask for
integers as their result are products of integers at once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from graphc.convert import import_block_quantized_weights
from graphc.convert.node_inputs import array_of, padded

_NEWEST = 99  # opset: of converters that take what older ones take, and more
_AFTER_ZERO_POINT = "int16"  # holds a byte less its zero point


class Node:
    """One node while it is converted; constants are known as arrays."""

    def __init__(self, builder: Any, attrs: Any, params: Any) -> None:
        self.builder, self.attrs, self.params = builder, dict(attrs), params
        if self.attrs.pop("channels_last", 0):
            raise ValueError("its channels come last")

    def emit(self, call: Any) -> Any:
        return self.builder.emit(call)

    def array(self, value: Any) -> Any | None:
        return array_of(value, self.params)

    def converted(self, kind: str, inputs: Sequence[Any]) -> Any:
        """What the importer makes of the operator for real numbers."""
        convert = onnx_frontend._get_convert_map()[kind].get_converter(_NEWEST)
        found = convert(self.builder, onnx_frontend.onnx_input(inputs), self.attrs, self.params)
        return self.emit(self.builder.normalize(found))

    def scalar(self, value: Any) -> Any:
        """A scale or zero point; one that some tool wrote as a vector of one number is that number."""
        known = self.array(value)
        if known is not None:
            return relax.const(known.reshape(()) if known.size == 1 else known)
        return value

    def decoded(self, data: Any, scale: Any, zero: Any, axis: int = 0) -> Any:
        scale = self.scalar(scale)
        zero = relax.const(np.zeros((), _type(data))) if zero is None else self.scalar(zero)
        return self.emit(_coded(relax.op.dequantize, data, scale, zero, axis, "float32"))

    def encoded(self, data: Any, scale: Any, zero: Any) -> Any:
        zero = relax.const(np.zeros((), "uint8")) if zero is None else self.scalar(zero)
        return self.emit(_coded(relax.op.quantize, data, self.scalar(scale), zero, 0, _type(zero)))

    def shifted(self, data: Any, zero: Any, *, column: bool = False) -> Any:
        """Bytes less their zero point: one number, or one a row, or one a column."""
        known, values = self.array(zero), self.array(data)
        if zero is None or (known is not None and not known.any()):
            return data
        if known is not None and values is not None:
            less = values.astype("int16") - _beside(known, column)
            fits = less.min(initial=0) >= -128 and less.max(initial=0) <= 127
            return relax.const(less.astype("int8") if fits else less)
        if known is not None:
            zero = relax.const(_beside(known, column))
        wide = (self.emit(relax.op.astype(value, _AFTER_ZERO_POINT)) for value in (data, zero))
        return self.emit(relax.op.subtract(*wide))


def _coded(make: Any, data: Any, scale: Any, zero: Any, axis: int, dtype: str) -> Any:
    if scale.ty.ndim and not zero.ty.ndim:
        zero = relax.const(np.full([int(size) for size in scale.ty.shape], zero.value.numpy()))
    return make(data, scale, zero, axis=axis, out_dtype=dtype)


def _type(value: Any) -> str:
    return str(value.ty.dtype)


def _beside(zero: Any, column: bool) -> Any:
    """A vector of zero points, so that it meets its rows; columns are met as they are."""
    steps = zero.astype("int16")
    if zero.ndim == 1 < zero.size and not column:
        return steps[:, None]
    return steps.reshape(() if zero.size == 1 else zero.shape)


def _stored(kind: str, axis: int, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """QuantizeLinear and DequantizeLinear, by TVM's own converters."""
    node = Node(builder, attrs, params)
    if kind == "DequantizeLinear" and node.attrs.get("block_size"):
        return import_block_quantized_weights.dequantize(builder, inputs, node.attrs, params)
    data, scale, zero = padded(inputs, 3)
    scale, zero = node.scalar(scale), None if zero is None else node.scalar(zero)
    node.attrs.setdefault("axis", axis)
    if not scale.ty.ndim:
        node.attrs["axis"] = 0
    elif zero is None:
        dtype = _type(data) if kind == "DequantizeLinear" else "uint8"
        zero = relax.const(np.zeros([int(size) for size in scale.ty.shape], dtype))
    convert = onnx_frontend._untaught_convert_map()[kind].get_converter(_NEWEST)
    return convert(builder, onnx_frontend.onnx_input([data, scale, zero]), node.attrs, params)


def _dynamic(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """DynamicQuantizeLinear: scale and zero point of what is there, whose range holds zero."""
    return relax.Tuple(list(_measured(Node(builder, attrs, params), inputs[0])))


def _measured(node: Node, data: Any) -> tuple[Any, Any, Any]:
    emit, op, number = node.emit, relax.op, partial(relax.const, dtype="float32")
    most = emit(op.maximum(emit(op.max(data)), number(0.0)))
    least = emit(op.minimum(emit(op.min(data)), number(0.0)))
    span = emit(op.divide(emit(op.subtract(most, least)), number(255.0)))
    scale = emit(op.where(emit(op.equal(span, number(0.0))), number(1.0), span))
    zero = emit(op.round(emit(op.divide(emit(op.negative(least)), scale))))
    whole = emit(op.add(emit(op.round(emit(op.divide(data, scale)))), zero))
    return _byte(node, whole), scale, _byte(node, zero)


def _byte(node: Node, value: Any) -> Any:
    return node.emit(relax.op.astype(node.emit(relax.op.clip(value, 0, 255)), "uint8"))


def _conv(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """QLinearConv. The bias is stored in the scale of the sums."""
    node = Node(builder, attrs, params)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = padded(inputs, 9)
    factors = [node.decoded(x, x_scale, x_zero), node.decoded(w, w_scale, w_zero)]
    if bias is not None:
        factors.append(node.decoded(bias, relax.const(_product(node, x_scale, w_scale)), None))
    return node.encoded(node.converted("Conv", factors), y_scale, y_zero)


def _product(node: Node, *scales: Any) -> Any:
    """The scale of a product, as an array."""
    of_data, of_weights = (node.array(scale) for scale in scales)
    if of_data is None or of_weights is None:
        raise ValueError("it computes the scale of its bias")
    found = of_data.reshape(-1) * of_weights.reshape(-1)
    return (found.reshape(()) if found.size == 1 else found).astype("float32")


def _matmul(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """QLinearMatMul: one scale a tensor, or of the weights one a column."""
    node = Node(builder, attrs, params)
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = padded(inputs, 8)
    factors = node.decoded(a, a_scale, a_zero), node.decoded(b, b_scale, b_zero, _last(b))
    return node.encoded(node.emit(relax.op.matmul(*factors)), y_scale, y_zero)


def _last(value: Any) -> int:
    return int(value.ty.ndim) - 1


def _gemm(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """QGemm; without an output's scale the result is real."""
    node = Node(builder, attrs, params)
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = padded(inputs, 9)
    alpha, across = float(attrs.get("alpha", 1.0)), int(not attrs.get("transB", 0))
    factors = [node.decoded(a, a_scale, a_zero), node.decoded(b, b_scale, b_zero, across)]
    if c is not None:
        scale = _product(node, a_scale, b_scale) * np.float32(alpha)
        factors.append(node.decoded(c, relax.const(scale), None, _last(c)))
    found = node.converted("Gemm", factors)
    return found if y_scale is None else node.encoded(found, y_scale, y_zero)


def _of_one(kind: str, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """QLinearSigmoid and its like: an input, its scale and zero point, the result's."""
    node = Node(builder, attrs, params)
    node.attrs.pop("opset", None)
    x, x_scale, x_zero, y_scale, y_zero = padded(inputs, 5)
    return node.encoded(node.converted(kind, [node.decoded(x, x_scale, x_zero)]), y_scale, y_zero)


def _of_two(kind: str, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    node = Node(builder, attrs, params)
    found = padded(inputs, 8)
    factors = node.decoded(*found[:3]), node.decoded(*found[3:6])
    return node.encoded(node.converted(kind, factors), *found[6:])


def _concat(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    node = Node(builder, attrs, params)
    scale, zero, *rest = padded(inputs, len(inputs))
    parts = [node.decoded(*rest[at : at + 3]) for at in range(0, len(rest), 3)]
    return node.encoded(node.converted("Concat", parts), scale, zero)


def _where(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    node = Node(builder, attrs, params)
    condition, *found = padded(inputs, 9)
    factors = condition, node.decoded(*found[:3]), node.decoded(*found[3:6])
    return node.encoded(node.converted("Where", factors), *found[6:])


def _matmul_integer(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """MatMulInteger: a sum of products of integers, 32 bits wide."""
    return _integers(Node(builder, attrs, params), *padded(inputs, 4))


def _integers(node: Node, a: Any, b: Any, a_zero: Any, b_zero: Any) -> Any:
    factors = node.shifted(a, a_zero), node.shifted(b, b_zero, column=True)
    return node.emit(relax.op.matmul(*factors, out_dtype="int32"))


def _conv_integer(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """ConvInteger: TVM's convolution adds up in the type of its factors."""
    node = Node(builder, attrs, params)
    x, w, x_zero, w_zero = padded(inputs, 4)
    factors = node.shifted(x, x_zero), node.shifted(w, _of_outputs(node, w, w_zero))
    return node.converted("Conv", [node.emit(relax.op.astype(factor, "int32")) for factor in factors])


def _of_outputs(node: Node, weights: Any, zero: Any) -> Any:
    """Zero points of a convolution's weights, so that they meet its outputs."""
    if zero is None or not zero.ty.ndim or int(zero.ty.shape[0]) == 1:
        return zero
    places, known = (-1, *[1] * _last(weights)), node.array(zero)
    return node.emit(relax.op.reshape(zero, places)) if known is None else relax.const(known.reshape(places))


def _to_real(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """MatMulIntegerToFloat."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = padded(inputs, 7)
    node = Node(builder, attrs, params)
    return _real(node, _integers(node, a, b, a_zero, b_zero), a_scale, b_scale, bias)


def _real(node: Node, sums: Any, a_scale: Any, b_scale: Any, bias: Any | None) -> Any:
    scale = node.emit(relax.op.multiply(node.scalar(a_scale), node.scalar(b_scale)))
    found = node.emit(relax.op.multiply(node.emit(relax.op.astype(sums, "float32")), scale))
    return found if bias is None else node.emit(relax.op.add(found, bias))


def _dynamic_matmul(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """DynamicQuantizeMatMul: the data is encoded by what is in it."""
    a, b, b_scale, b_zero, bias = padded(inputs, 5)
    node = Node(builder, attrs, params)
    data, a_scale, a_zero = _measured(node, a)
    return _real(node, _integers(node, data, b, a_zero, b_zero), a_scale, b_scale, bias)


def _attention(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """QAttention: the products with its weights are quantised, what follows is real."""
    x, w, bias, x_scale, w_scale, mask, x_zero, w_zero, past = padded(inputs, 9)
    node = Node(builder, attrs, params)
    for name in ("unidirectional", "do_rotary", "past_present_share_buffer"):
        if node.attrs.get(name) == 0:
            del node.attrs[name]
    factors = node.decoded(x, x_scale, x_zero), node.decoded(w, w_scale, w_zero, 1)
    return node.converted("Attention", [*factors, bias, mask, past])


CONVERTERS: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    "QuantizeLinear": partial(_stored, "QuantizeLinear", 1),
    "DequantizeLinear": partial(_stored, "DequantizeLinear", 1),
    "DynamicQuantizeLinear": _dynamic,
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
    "QLinearAdd": partial(_of_two, "Add"),
    "QLinearMul": partial(_of_two, "Mul"),
    "QLinearSigmoid": partial(_of_one, "Sigmoid"),
    "QLinearLeakyRelu": partial(_of_one, "LeakyRelu"),
    "QLinearSoftmax": partial(_of_one, "Softmax"),
    "QLinearAveragePool": partial(_of_one, "AveragePool"),
    "QLinearGlobalAveragePool": partial(_of_one, "GlobalAveragePool"),
    "MatMulInteger": _matmul_integer,
    "ConvInteger": _conv_integer,
    "MatMulIntegerToFloat": _to_real,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "QAttention": _attention,
}
