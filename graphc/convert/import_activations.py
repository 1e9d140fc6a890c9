"""Convert ONNX activations and n-ary operators to operators that ConvertLayout can handle.

TVM's importer uses clip, select and stack for them, which block a change of layout. A
constant comes first in a maximum or minimum where NaN must stay NaN, and second elsewhere.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import relax

_op = relax.op


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
    return _op.add(
        _select_or_zero(_op.greater(x, upper_edge), high), _select_or_zero(_op.less(x, lower_edge), low)
    )


def _left_to_right(operator: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """Return a converter that applies a binary operator to all inputs from left to right."""

    def convert(builder: Any, inputs: Any, _: Any, __: Any) -> Any:
        return reduce(lambda left, right: builder.normalize(operator(left, right)), inputs)

    return convert


CONVERTERS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
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
