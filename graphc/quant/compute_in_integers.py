"""Rewrite operators between dequantize and quantize to compute on the bytes directly.

Product instructions need unsigned data, so signed bytes are stored shifted up by 128.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax

from graphc.core.graph_pass import Build, Graph, Leave, Pass, operator_name
from graphc.core.graph_rewriting import convolution, known, mostly_whole, permutation, sizes_of
from graphc.quant.int8_depthwise_conv import NARROWEST
from graphc.quant.int8_dot_products import OFFSET
from graphc.quant.int8_instructions import QUAD, needed_instruction
from graphc.quant.quantized_value import BYTES, LIMITS, QuantizedValue, quantized_value


def signed(value: Any) -> Any:
    """Shift unsigned bytes down to signed ones."""
    wide = relax.op.subtract(relax.op.astype(value, "int16"), relax.const(OFFSET, "int16"))
    return relax.op.astype(wide, "int8")


def unsigned(value: Any, g: Graph) -> Any | None:
    """Return the unsigned bytes that `signed` shifted down to this value, or None."""
    narrow = g.producer(value, "relax.astype")
    shift = None if narrow is None else g.producer(narrow.args[0], "relax.subtract")
    wide = None if shift is None else g.producer(shift.args[0], "relax.astype")
    if narrow is None or wide is None or narrow.ty.dtype != "int8":
        return None
    return wide.args[0] if wide.args[0].ty.dtype == "uint8" else None


def encode(call: Any, g: Graph) -> Build:
    """Return a build of an encoding as unsigned bytes. Raises Leave.

    Bytes that were decoded by the same scale and zero point are returned unchanged.
    """
    _, scale, zero = call.args
    if all(map(g.is_constant, call.args)):
        return _encode_weights(call, g)
    if not all(g.is_constant(each) and each.ty.ndim == 0 for each in (scale, zero)):
        raise Leave("its scale or zero point is computed, or not the same for all")
    if call.ty.dtype not in BYTES:
        raise Leave(f"it encodes as {call.ty.dtype}, which are no bytes")
    return _encode_without_sign(call, g)


def _encode_without_sign(call: Any, g: Graph) -> Build:
    (data, scale, zero), has_sign = call.args, call.ty.dtype == "int8"
    shifted_zero = np.array(int(g.array(zero)) + (OFFSET if has_sign else 0), "uint8")
    same_bytes = _bytes_of(data, g.array(scale), shifted_zero, g)
    if same_bytes is not None:
        return partial(signed, same_bytes) if has_sign else lambda: same_bytes
    if not has_sign:
        raise Leave("it has no sign")

    def build() -> Any:
        return signed(relax.op.quantize(data, scale, relax.const(shifted_zero), axis=0, out_dtype="uint8"))

    return build


def _bytes_of(data: Any, scale: Any, zero: Any, g: Graph) -> Any | None:
    """Return the bytes from which this scale and zero point decoded the data, or None."""
    stored = quantized_value(data, g)
    if stored is None or not stored.same or stored.constant or stored.dtype != "uint8":
        return None
    return stored.data if stored.scale == scale and stored.zero == zero else None


def _encode_weights(call: Any, g: Graph) -> Build:
    """Return a build that encodes float weights at compile time. Raises Leave."""
    if str(call.ty.dtype) not in LIMITS:
        raise Leave(f"it encodes as {call.ty.dtype}")
    places = [-1 if at == int(call.attrs.axis) % call.ty.ndim else 1 for at in range(call.ty.ndim)]

    def build() -> Any:
        values, scale, zero = map(g.array, call.args)
        scale, zero = (each.reshape(places) if each.ndim else each for each in (scale, zero))
        quantized = np.rint(values / scale) + zero.astype("float32")
        return relax.const(np.clip(quantized, *LIMITS[str(call.ty.dtype)]).astype(str(call.ty.dtype)))

    return build


def decode(call: Any, g: Graph) -> Build:
    """Return a build that decodes the unsigned bytes which were shifted down. Raises Leave."""
    value, scale, zero = call.args
    bytes_ = unsigned(value, g)
    if bytes_ is None:
        raise Leave
    if zero.ty.ndim or not g.is_constant(zero):
        raise Leave("its zero point is computed, or not the same for all")
    shifted_zero = np.array(int(g.array(zero)) + OFFSET, "uint8")
    dtype = str(call.ty.dtype)
    return lambda: relax.op.dequantize(bytes_, scale, relax.const(shifted_zero), axis=0, out_dtype=dtype)


# Operators whose results are some of their inputs' numbers.
MOVES = frozenset(
    f"relax.{name}"
    for name in (
        "reshape",
        "permute_dims",
        "strided_slice",
        "squeeze",
        "expand_dims",
        "flatten",
        "broadcast_to",
        "take",
        "nn.max_pool1d",
        "nn.max_pool2d",
        "nn.max_pool3d",
    )
)


def move(call: Any, g: Graph) -> Build:
    """Return a build that moves the bytes and decodes the result. Raises Leave."""
    value = call.args[0]
    bytes_ = unsigned(value, g)
    if bytes_ is not None:
        return lambda: signed(_with(call, bytes_))
    stored = quantized_value(value, g)
    if stored is None:
        raise Leave
    if stored.constant:
        return _transpose_weights(call, stored)
    if not stored.same:
        raise Leave("its numbers have more than one scale")
    return lambda: QuantizedValue(_with(call, stored.data), stored.scale, stored.zero, 0).decode()


def limit(call: Any, g: Graph) -> Build:
    """Return a build that applies ReLU to the bytes, with unchanged scale. Raises Leave."""
    stored = quantized_value(call.args[0], g)
    if stored is None:
        raise Leave
    if stored.constant or not stored.same or stored.dtype not in LIMITS:
        raise Leave("it limits no bytes of one scale")
    return partial(_limited, stored)


def join(call: Any, g: Graph) -> Build:
    """Return a build that concatenates the bytes and decodes the result. Raises Leave."""
    parts = call.args[0]
    stored = [quantized_value(part, g) for part in getattr(parts, "fields", ())]
    decoded = [each for each in stored if each is not None]
    if not decoded:
        raise Leave
    if len(decoded) < len(stored) or not all(map(decoded[0].like, decoded)):
        raise Leave("its parts have different scales, or are no bytes")

    def build() -> Any:
        joined = relax.op.concat([each.data for each in decoded], axis=call.attrs.axis)
        return QuantizedValue(joined, decoded[0].scale, decoded[0].zero, 0).decode()

    return build


def _with(call: Any, data: Any) -> Any:
    """Return the same call with other data."""
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)


def _limited(stored: QuantizedValue) -> Any:
    data = stored.data
    if stored.zero > LIMITS[stored.dtype][0]:
        data = relax.op.maximum(data, relax.const(stored.zero.astype(stored.dtype)))
    return QuantizedValue(data, stored.scale, stored.zero, 0).decode()


def _transpose_weights(call: Any, stored: QuantizedValue) -> Build:
    """Return a build that transposes constant weights at compile time. Raises Leave."""
    if call.op.name != "relax.permute_dims":
        raise Leave("it moves constants")
    axes = permutation(call)

    def build() -> Any:
        data = relax.const(np.ascontiguousarray(stored.data.value.numpy().transpose(axes)))
        axis = axes.index(stored.axis % len(axes))
        return QuantizedValue(data, stored.scale, stored.zero, axis).decode()

    return build


_EXACT = 2**24 // (255 * OFFSET)  # products of bytes whose sum is exact in float32


@dataclass(frozen=True)
class IntegerProduct:
    """A multiplication, its decoded data, its weights as bytes, and the scale of its sums."""

    call: Any
    data: QuantizedValue
    weights: Any
    scale: Any

    @property
    def convolves(self) -> bool:
        return bool(self.call.op.name == "relax.nn.conv2d")

    def sums(self) -> Any:
        """Build the sums of integers and convert them to floats."""
        data = self.data.data
        if self.data.zero:
            wide = relax.op.astype(data, "int16")
            data = relax.op.subtract(wide, relax.const(np.array(self.data.zero, "int16")))
        if self.convolves and _real_taps(self.call, self.weights):
            numbers = relax.const(self.weights.astype("float32"))
            sums = convolution(self.call, relax.op.astype(data, "float32"), numbers)
        else:
            multiply = partial(convolution, self.call) if self.convolves else relax.op.matmul
            sums = relax.op.astype(multiply(data, relax.const(self.weights), out_dtype="int32"), "float32")
        return relax.op.multiply(sums, relax.const(self.scale))


def multiply(call: Any, g: Graph) -> Build:
    """Return a build of a byte product that the target computes well. Raises Leave."""
    data, weights = (quantized_value(arg, g) for arg in call.args)
    if data is None or weights is None:
        raise Leave("one of its factors is no decoded bytes")
    if not known(call):
        raise Leave("its sizes are known only when it runs")
    weight_bytes = _weights(weights)
    if weight_bytes is None or data.dtype not in BYTES or call.ty.dtype != "float32":
        raise Leave("its weights are computed, or its numbers are no bytes")
    convolves = call.op.name == "relax.nn.conv2d"
    if not data.same or (not weights.same and weights.axis % weight_bytes.ndim != (0 if convolves else 1)):
        raise Leave("its scales lie along an axis that it sums up")
    if not (_convolution_fits if convolves else _matmul_fits)(call, weight_bytes):
        raise Leave("its sizes fit neither the instruction nor vectors")
    scale = (data.scale * weights.scale).astype("float32")
    scale = scale.reshape(1, -1, 1, 1) if convolves and scale.ndim else scale
    return IntegerProduct(call, data, weight_bytes, scale).sums


def _weights(stored: QuantizedValue) -> Any | None:
    """Return constant weights minus their zero point, or None if they do not fit in int8."""
    if not stored.constant or stored.dtype not in BYTES:
        return None
    zero = stored.zero.astype("int32")
    if zero.ndim:
        zero = zero.reshape([-1 if at == stored.axis else 1 for at in range(stored.data.ty.ndim)])
    values = stored.data.value.numpy().astype("int32") - zero
    fits = values.min(initial=0) >= -OFFSET and values.max(initial=0) < OFFSET
    return values.astype("int8") if fits else None


def _matmul_fits(call: Any, weights: Any) -> bool:
    return weights.ndim == 2 and call.args[0].ty.ndim >= 2 and _fills_vectors(weights.shape[1])


def _convolution_fits(call: Any, weights: Any) -> bool:
    attrs = call.attrs
    is_onnx = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    is_depthwise = int(attrs.groups) == sizes_of(call.args[0])[1] == weights.shape[0] > 1
    is_dense = int(attrs.groups) == 1 and _fills_vectors(weights.shape[0])
    rows = weights.shape[1] % QUAD == 0 or int(attrs.dilation[1]) == 1
    return bool(is_onnx and ((is_depthwise and weights.shape[1] == 1) or (is_dense and rows)))


def _fills_vectors(outputs: int) -> bool:
    """Return whether the outputs fill the instruction's vectors with little padding."""
    return mostly_whole(outputs, needed_instruction().lanes)


def _real_taps(call: Any, weights: Any) -> bool:
    """Return whether `Int8DepthwiseConv` may compute it: sums are exact in float32."""
    outputs, _, *window = weights.shape
    each = int(call.attrs.groups) == outputs and outputs % NARROWEST == 0
    return bool(each and np.prod(window) <= _EXACT)


_RULES: Final[Mapping[str, Callable[[Any, Graph], Build]]] = {
    "relax.quantize": encode,
    "relax.dequantize": decode,
    "relax.nn.conv2d": multiply,
    "relax.matmul": multiply,
    "relax.concat": join,
    "relax.nn.relu": limit,
    **dict.fromkeys(MOVES, move),
}


class ComputeInIntegers(Pass[Build]):
    """Multiplies, moves, clamps and joins the bytes directly, between dequantize and quantize."""

    name, match = "quant.compute_in_integers", tuple(_RULES)
    dtype, any_size, forward = "", True, True

    def check(self, call: Any, g: Graph) -> Build:
        build = _RULES[operator_name(call)](call, g)
        needed_instruction()
        return build

    def rewrite(self, call: Any, facts: Build, g: Graph) -> Any:
        return facts()
