"""Register converters for operators that TVM's ONNX importer lacks or supports only in part.

Each file of converters has a dict `CONVERTERS` from operator names to functions. A function
takes the importer's builder, the node's inputs and attributes, and the importer's
parameters. It returns one or more results, or raises ValueError for unsupported forms.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from mallorn.graphc.convert import import_lstm_gru_rnn, import_quantized_operators
from mallorn.graphc.convert.node_inputs import constant_array, first_inputs

_op = relax.op
Convert = Callable[[Any, Any, Any, Any], Any]


def _number(value: float, tensor: Any) -> Any:
    return relax.const(value, tensor.ty.dtype)


def _between(x: Any, low: float, high: float) -> Any:
    return _op.minimum(_number(high, x), _op.maximum(_number(low, x), x))


def _hard_swish(builder: Any, inputs: Any, _: Any, __: Any) -> Any:
    (x,) = inputs
    shifted = builder.normalize(_op.add(x, _number(3, x)))
    return _op.multiply(x, _op.divide(_between(shifted, 0, 6), _number(6, x)))


def _hard_sigmoid(builder: Any, inputs: Any, attrs: Any, _: Any) -> Any:
    (x,) = inputs
    slope, offset = float(attrs.get("alpha", 0.2)), float(attrs.get("beta", 0.5))
    line = _op.add(_op.multiply(x, _number(slope, x)), _number(offset, x))
    return _between(builder.normalize(line), 0, 1)


def _scaled_elu(x: Any, height: float, width: float) -> Any:
    """Return x where it is positive, otherwise height * (exp(x / width) - 1)."""
    negative = _op.minimum(_number(0, x), x)
    scaled = negative if width == 1 else _op.divide(negative, _number(width, x))
    curve = _op.subtract(_op.exp(scaled), _number(1, x))
    return _op.add(_op.maximum(_number(0, x), x), _op.multiply(curve, _number(height, x)))


def _celu(_: Any, inputs: Any, attrs: Any, __: Any) -> Any:
    alpha = float(attrs.get("alpha", 1.0))
    return _scaled_elu(inputs[0], alpha, alpha)


def _selu(_: Any, inputs: Any, attrs: Any, __: Any) -> Any:
    alpha = float(attrs.get("alpha", 1.67326319217681884765625))
    gamma = float(attrs.get("gamma", 1.05070102214813232421875))
    return _op.multiply(_scaled_elu(inputs[0], alpha, 1.0), _number(gamma, inputs[0]))


def _select_or_zero(mask: Any, x: Any) -> Any:
    """Return x where the mask is true, else 0. It multiplies, so x must be finite."""
    return _op.multiply(_op.astype(mask, x.ty.dtype), x)


def _thresholded_relu(builder: Any, inputs: Any, attrs: Any, _: Any) -> Any:
    (x,) = inputs
    least = _number(float(attrs.get("alpha", 1.0)), x)
    return _select_or_zero(_op.greater(x, least), builder.normalize(_op.maximum(x, least)))


def _shrink(builder: Any, inputs: Any, attrs: Any, _: Any) -> Any:
    (x,) = inputs
    edge, bias = (float(attrs.get(name, value)) for name, value in (("lambd", 0.5), ("bias", 0.0)))
    upper_edge, lower_edge = _number(edge, x), _number(-edge, x)
    high = builder.normalize(_op.subtract(_op.maximum(x, upper_edge), _number(bias, x)))
    low = builder.normalize(_op.add(_op.minimum(x, lower_edge), _number(bias, x)))
    upper = _select_or_zero(_op.greater(x, upper_edge), high)
    return _op.add(upper, _select_or_zero(_op.less(x, lower_edge), low))


def _topk(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    # TVM reads the count from an attribute before opset 11, but in opset 10 it is an input.
    convert = onnx_frontend.TopK._impl_v1 if "k" in attrs else onnx_frontend.TopK._impl_v11
    return convert(builder, inputs, {**attrs, "sorted": 1}, params)  # sorted=0 allows any order


def _non_max_suppression(builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
    """Convert NonMaxSuppression with ONNX's meaning of limits: boxes that overlap by more than
    the threshold (0 by default) are suppressed. TVM's means at least, and 0.5 by default."""
    boxes, scores, count, *limits = first_inputs(inputs, 5)
    overlap, score = (constant_array(value, params) for value in limits)
    threshold = np.nextafter(np.float32(0 if overlap is None else overlap.item()), np.float32(np.inf))
    least = np.float32(-np.inf if score is None else score.item())
    values = onnx_frontend.onnx_input([boxes, scores, count, relax.const(threshold), relax.const(least)])
    return onnx_frontend.NonMaxSuppression._impl_v10(builder, values, attrs, params)


def _bit_shift(builder: Any, inputs: Any, attrs: Any, _: Any) -> Any:
    """Convert BitShift. Negative or large counts shift out all bits; TVM's kernel may not."""
    data, count = inputs
    dtype = str(data.ty.dtype)
    highest = _number(np.iinfo(dtype).bits - 1, data)
    is_out = builder.normalize(_op.greater(count, highest))
    if is_signed := dtype.startswith("i"):
        is_out = builder.normalize(_op.logical_or(is_out, _op.less(count, _number(0, data))))
    bounded = builder.normalize(_op.where(is_out, highest, count))
    if attrs["direction"] == b"RIGHT":
        shifted = builder.normalize(_op.right_shift(data, bounded))
        if is_signed:  # copies of the sign are left
            return shifted
    else:
        shifted = builder.normalize(_op.left_shift(data, bounded))
    return _op.where(is_out, _number(0, data), shifted)


def _left_to_right(operator: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """Return a converter that applies a binary operator to all inputs in order."""

    def convert(builder: Any, inputs: Any, _: Any, __: Any) -> Any:
        return reduce(lambda left, right: builder.normalize(operator(left, right)), inputs)

    return convert


# Activations and n-ary operators. TVM's importer uses clip, select and stack for them, which block a
# change of layout. A constant comes first in a maximum or minimum where NaN must stay NaN, else second.
CONVERTERS: dict[str, Convert] = {
    "Celu": _celu,
    "Elu": lambda _, inputs, attrs, __: _scaled_elu(inputs[0], float(attrs.get("alpha", 1.0)), 1.0),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Max": _left_to_right(_op.maximum),
    "Mean": lambda builder, inputs, *others: _op.divide(
        CONVERTERS["Sum"](builder, inputs, *others), _number(len(inputs), inputs[0])
    ),
    "Min": _left_to_right(_op.minimum),
    "Selu": _selu,
    "Shrink": _shrink,
    "Sum": _left_to_right(_op.add),
    "ThresholdedRelu": _thresholded_relu,
}
# Operators that TVM's importer converts to other numbers than ONNX's.
_CORRECTED: dict[str, Convert] = {
    "BitShift": _bit_shift,
    "NonMaxSuppression": _non_max_suppression,
    "TopK": _topk,
}


def patch_importer() -> None:
    """Patch TVM's ONNX importer, which has no registry, so that it uses our converters.

    The patched importer also computes known axis sizes and Gather indices as constants.
    TVM's emits three operators per Gather instead. FoldConstant compiles each of them,
    which takes minutes for unrolled graphs.
    """
    if not hasattr(onnx_frontend, "_original_convert_map"):
        onnx_frontend._original_convert_map = onnx_frontend._get_convert_map
        onnx_frontend._get_convert_map = lambda: {**onnx_frontend._original_convert_map(), **_TYPES}
        onnx_frontend._original_axis_extent = onnx_frontend._axis_extent
        onnx_frontend._original_normalize_negative_indices = onnx_frontend._normalize_negative_indices
        onnx_frontend._axis_extent = _extent
        onnx_frontend._normalize_negative_indices = _normalize_negative_indices


def _type(kind: str, convert: Convert) -> type:
    def answer(_: Any, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
        return convert(builder, inputs, attrs, params)

    return type(kind, (onnx_frontend.OnnxOpConverter,), {"_impl_v1": classmethod(answer)})


# Our converters replace TVM's.
_TYPES = {
    kind: _type(kind, convert)
    for converters in (
        CONVERTERS,
        _CORRECTED,
        import_lstm_gru_rnn.CONVERTERS,
        import_quantized_operators.CONVERTERS,
    )
    for kind, convert in converters.items()
}


def _extent(builder: Any, data: Any, axis: int, kind: str) -> Any:
    """Return the size of an axis, as a constant if the shape is known."""
    shape = data.ty.shape
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if isinstance(size, tvm.tirx.IntImm):
        return relax.const(int(size), kind)
    return onnx_frontend._original_axis_extent(builder, data, axis, kind)


def _normalize_negative_indices(builder: Any, indices: Any, extent: Any) -> Any:
    """Make negative indices count from the front; constant if indices and extent are."""
    constants = [value for value in (indices, extent) if isinstance(value, tvm.ir.GenericConst)]
    if len(constants) < len((indices, extent)):
        return onnx_frontend._original_normalize_negative_indices(builder, indices, extent)
    numbers, size = (value.value.numpy() for value in constants)
    return relax.const(np.where(numbers < 0, numbers + size, numbers).astype(numbers.dtype))
