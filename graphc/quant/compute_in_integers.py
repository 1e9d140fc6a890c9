"""Rewrite operators between dequantize and quantize to compute on the bytes directly.

Product instructions need unsigned data, so signed bytes are stored shifted up by 128.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Build, Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import (
    copy_convolution,
    has_known_sizes,
    is_worth_padding,
    permutation,
    sizes_of,
)
from mallorn.graphc.quant.dot_product_function import QUAD
from mallorn.graphc.quant.dot_products import OFFSET
from mallorn.graphc.quant.int8_depthwise_conv import NARROWEST
from mallorn.graphc.quant.int8_instructions import required_instruction
from mallorn.graphc.quant.quantized_value import BYTES, LIMITS, QuantizedValue, quantized_value


def shift_to_signed(value: Any) -> Any:
    """Return an expression that shifts unsigned bytes down by 128 to signed ones."""
    wide = relax.op.subtract(relax.op.astype(value, "int16"), relax.const(OFFSET, "int16"))
    return relax.op.astype(wide, "int8")


def find_unsigned_source(value: Any, g: Graph) -> Any | None:
    """Return the unsigned bytes from which `shift_to_signed` made this value; None if it did not."""
    narrow = g.producer(value, "relax.astype")
    shift = None if narrow is None else g.producer(narrow.args[0], "relax.subtract")
    wide = None if shift is None else g.producer(shift.args[0], "relax.astype")
    if narrow is None or wide is None or narrow.ty.dtype != "int8":
        return None
    return wide.args[0] if wide.args[0].ty.dtype == "uint8" else None


def plan_quantize(call: Any, g: Graph) -> Build:
    """Return a function that quantizes to unsigned bytes instead of signed ones.

    Bytes that were dequantized with the same scale and zero point are used again instead.
    Raises Leave if the scale or zero point is computed, or nothing is to be changed.
    """
    data, scale, zero = call.args
    if all(map(g.is_constant, call.args)):  # encode float weights at compile time
        if str(call.ty.dtype) not in LIMITS:
            raise Leave(f"the quantised type is {call.ty.dtype}")
        return partial(_encoded_weights, call, g)
    if not all(g.is_constant(value) and value.ty.ndim == 0 for value in (scale, zero)):
        raise Leave("the scale or zero point is computed, or is not a single number")
    if call.ty.dtype not in BYTES:
        raise Leave(f"the quantised type is {call.ty.dtype}, not int8 or uint8")
    has_sign = call.ty.dtype == "int8"
    shifted_zero = np.array(int(g.array(zero)) + (OFFSET if has_sign else 0), "uint8")
    quantized = quantized_value(data, g)
    are_bytes = quantized is not None and not quantized.is_constant and quantized.dtype == "uint8"
    if quantized is not None and are_bytes and quantized.has_one_scale:
        is_same_code = quantized.scale == g.array(scale) and quantized.zero == shifted_zero
        if is_same_code and has_sign:
            return partial(shift_to_signed, quantized.data)
        if is_same_code:
            return lambda: quantized.data
    if not has_sign:
        raise Leave("the quantised type is uint8 already")
    return lambda: shift_to_signed(
        relax.op.quantize(data, scale, relax.const(shifted_zero), axis=0, out_dtype="uint8")
    )


def _encoded_weights(call: Any, g: Graph) -> Any:
    shape = [-1 if dim == int(call.attrs.axis) % call.ty.ndim else 1 for dim in range(call.ty.ndim)]
    values, scale, zero = map(g.array, call.args)
    scale, zero = (array.reshape(shape) if array.ndim else array for array in (scale, zero))
    quantized = np.rint(values / scale) + zero.astype("float32")
    return relax.const(np.clip(quantized, *LIMITS[str(call.ty.dtype)]).astype(str(call.ty.dtype)))


def plan_dequantize(call: Any, g: Graph) -> Build:
    """Return a function that dequantizes what `shift_to_signed` shifted. Raises Leave for others."""
    value, scale, zero = call.args
    bytes_ = find_unsigned_source(value, g)
    if bytes_ is None:
        raise Leave
    if zero.ty.ndim or not g.is_constant(zero):
        raise Leave("the zero point is computed, or is not a single number")
    shifted_zero = np.array(int(g.array(zero)) + OFFSET, "uint8")
    dtype = str(call.ty.dtype)
    return lambda: relax.op.dequantize(bytes_, scale, relax.const(shifted_zero), axis=0, out_dtype=dtype)


# Operators whose results are some of their inputs' numbers.
MOVES = frozenset(
    f"relax.{name}"
    for name in (
        *("broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape", "squeeze", "strided_slice"),
        *("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "take"),
    )
)


def plan_data_movement(call: Any, g: Graph) -> Build:
    """Return a function that reshapes, slices or pools bytes instead of decoded numbers.
    Raises Leave if the data is not decoded from bytes with one scale."""
    value = call.args[0]
    bytes_ = find_unsigned_source(value, g)
    if bytes_ is not None:
        return lambda: shift_to_signed(_with(call, bytes_))
    quantized = quantized_value(value, g)
    if quantized is None:
        raise Leave
    if quantized.is_constant:
        if call.op.name != "relax.permute_dims":
            raise Leave("the operator moves a constant and is not a transpose")
        axes = permutation(call)
        weights = relax.const(np.ascontiguousarray(quantized.data.value.numpy().transpose(axes)))
        axis = axes.index(quantized.axis % len(axes))
        return QuantizedValue(weights, quantized.scale, quantized.zero, axis).decode
    if not quantized.has_one_scale:
        raise Leave("the input has more than one scale")
    return lambda: QuantizedValue(_with(call, quantized.data), quantized.scale, quantized.zero, 0).decode()


def plan_relu(call: Any, g: Graph) -> Build:
    """Return a function that applies ReLU to bytes of a scale. Raises Leave for others."""
    quantized = quantized_value(call.args[0], g)
    if quantized is None:
        raise Leave
    if quantized.is_constant or not quantized.has_one_scale or quantized.dtype not in LIMITS:
        raise Leave("the input of the clip is not quantised data with one scale")

    def build() -> Any:
        data = quantized.data
        if quantized.zero > LIMITS[quantized.dtype][0]:
            data = relax.op.maximum(data, relax.const(quantized.zero.astype(quantized.dtype)))
        return QuantizedValue(data, quantized.scale, quantized.zero, 0).decode()

    return build


def plan_concat(call: Any, g: Graph) -> Build:
    """Return a function that concatenates bytes instead of the numbers decoded from them.

    Raises Leave unless all parts are decoded from bytes with the same scale and zero point.
    """
    parts = getattr(call.args[0], "fields", ())
    decoded = [value for part in parts if (value := quantized_value(part, g)) is not None]
    if not decoded:
        raise Leave
    if len(decoded) < len(parts) or not all(map(decoded[0].has_same_code, decoded)):
        raise Leave("the parts of the concat have different scales, or are not quantised")

    def build() -> Any:
        data = relax.op.concat([value.data for value in decoded], axis=call.attrs.axis)
        return QuantizedValue(data, decoded[0].scale, decoded[0].zero, 0).decode()

    return build


def _with(call: Any, data: Any) -> Any:
    return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)


_EXACT = 2**24 // (255 * OFFSET)  # products of bytes whose sum is exact in float32


@dataclass(frozen=True)
class IntegerProduct:
    """A matmul or convolution: quantized data, weights of 256 values, and scale of the sums."""

    call: Any
    data: QuantizedValue
    weights: Any
    scale: Any

    @property
    def is_convolution(self) -> bool:
        return bool(self.call.op.name == "relax.nn.conv2d")

    def build_scaled_sums(self) -> Any:
        data = self.data.data
        if self.data.zero:
            wide = relax.op.astype(data, "int16")
            data = relax.op.subtract(wide, relax.const(np.array(self.data.zero, "int16")))
        outputs, _, *window = self.weights.shape if self.is_convolution else (0, 0)
        is_depthwise = self.is_convolution and int(self.call.attrs.groups) == outputs
        # `Int8DepthwiseConv` may compute it: sums are exact in float32.
        if is_depthwise and outputs % NARROWEST == 0 and np.prod(window) <= _EXACT:
            numbers = relax.const(self.weights.astype("float32"))
            sums = copy_convolution(self.call, relax.op.astype(data, "float32"), numbers)
        else:
            multiply = partial(copy_convolution, self.call) if self.is_convolution else relax.op.matmul
            sums = relax.op.astype(multiply(data, relax.const(self.weights), out_dtype="int32"), "float32")
        return relax.op.multiply(sums, relax.const(self.scale))


def plan_product(call: Any, g: Graph) -> Build:
    """Return a function that multiplies bytes instead of the numbers decoded from them.

    Raises Leave unless both are such bytes, and scales and sizes suit the target.
    """
    data, weights = (quantized_value(arg, g) for arg in call.args)
    if data is None or weights is None:
        raise Leave("a factor is not dequantised data")
    if not has_known_sizes(call):
        raise Leave("the sizes of the operator are known only at run time")
    are_bytes = weights.dtype in BYTES and data.dtype in BYTES and call.ty.dtype == "float32"
    if not weights.is_constant or not are_bytes:
        raise Leave("the weights are computed, or a factor does not fit into 8 bits")
    zero = weights.zero.astype("int32")
    if zero.ndim:
        zero = zero.reshape([-1 if dim == weights.axis else 1 for dim in range(weights.data.ty.ndim)])
    weight_bytes = weights.data.value.numpy().astype("int32") - zero
    low, high = weight_bytes.min(initial=0), weight_bytes.max(initial=0)
    if high - low >= 2 * OFFSET:
        raise Leave("the weights are computed, or a factor does not fit into 8 bits")
    # `Int8DotProducts` shifts weights that are more than bytes.
    weight_bytes = weight_bytes.astype("int8" if low >= -OFFSET and high < OFFSET else "int16")
    is_convolution = call.op.name == "relax.nn.conv2d"
    has_scale_per_output = weights.axis % weight_bytes.ndim == (0 if is_convolution else 1)
    if not data.has_one_scale or not (weights.has_one_scale or has_scale_per_output):
        raise Leave("the scales vary along an axis that the operator sums over")
    if is_convolution:
        attrs, (outputs, inputs, *_) = call.attrs, weight_bytes.shape
        is_onnx = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
        is_depthwise = int(attrs.groups) == sizes_of(call.args[0])[1] == outputs > 1 and inputs == 1
        has_rows = inputs % QUAD == 0 or int(attrs.dilation[1]) == 1
        is_dense = int(attrs.groups) == 1 and _fills_vectors(outputs) and has_rows
        fits = is_onnx and (is_depthwise or is_dense)
    else:
        is_matrix = weight_bytes.ndim == 2 and call.args[0].ty.ndim >= 2
        fits = is_matrix and _fills_vectors(weight_bytes.shape[1])
    if not fits:
        raise Leave("the sizes fit neither the instruction nor vectors")
    scale = (data.scale * weights.scale).astype("float32")
    scale = scale.reshape(1, -1, 1, 1) if is_convolution and scale.ndim else scale
    return IntegerProduct(call, data, weight_bytes, scale).build_scaled_sums


def _fills_vectors(outputs: int) -> bool:
    return is_worth_padding(outputs, required_instruction().lanes)


_RULES: Final[Mapping[str, Callable[[Any, Graph], Build]]] = {
    "relax.quantize": plan_quantize,
    "relax.dequantize": plan_dequantize,
    "relax.nn.conv2d": plan_product,
    "relax.matmul": plan_product,
    "relax.concat": plan_concat,
    "relax.nn.relu": plan_relu,
    **dict.fromkeys(MOVES, plan_data_movement),
}


class ComputeInIntegers(Pass[Build]):
    """Multiplies, moves, clamps and joins bytes instead of the numbers decoded from them."""

    name, match = "compute_in_integers", tuple(_RULES)
    dtype, any_size, forward = "", True, True

    def check(self, call: Any, g: Graph) -> Build:
        build = _RULES[operator_name(call)](call, g)
        required_instruction()
        return build

    def rewrite(self, call: Any, facts: Build, g: Graph) -> Any:
        return facts()
