"""Replace the remaining quantize and dequantize operators by plain arithmetic."""

from typing import Any

import numpy as np
import tvm
from tvm import relax

from graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from graphc.quant.int8_instructions import needed_instruction
from graphc.quant.quantized_value import LIMITS


class QuantizeToArithmetic(Pass[None]):
    """Writes the remaining quantize and dequantize operators as arithmetic that TVM can fuse."""

    name, match = "quant.quantize_to_arithmetic", ("relax.dequantize", "relax.quantize")
    dtype = ""
    after = ("quant.compute_in_integers",)

    def check(self, call: Any, g: Graph) -> None:
        needed_instruction()
        decodes = operator_name(call) == "relax.dequantize"
        real, integer = (call, call.args[0]) if decodes else (call.args[0], call)
        if real.ty.dtype != "float32" or (not decodes and str(integer.ty.dtype) not in LIMITS):
            raise Leave(f"it makes {call.ty.dtype} of {call.args[0].ty.dtype}")

    def rewrite(self, call: Any, facts: None, g: Graph) -> Any:
        scale, zero = (_along(call, each, g) for each in call.args[1:])
        write = _decoded if operator_name(call) == "relax.dequantize" else _encoded
        return write(call, scale, _real(zero, g))


def _decoded(call: Any, scale: Any, zero: Any | None) -> Any:
    wide = relax.op.astype(call.args[0], "float32")
    return relax.op.multiply(wide if zero is None else relax.op.subtract(wide, zero), scale)


def _encoded(call: Any, scale: Any, zero: Any | None) -> Any:
    """Scale, round to even, add the zero point and clamp to the type's range."""
    data, divided = call.args[0], relax.op.divide(call.args[0], scale)
    if isinstance(scale, tvm.ir.GenericConst):
        divided = relax.op.multiply(data, relax.const(np.float32(1) / scale.value.numpy()))
    rounded = relax.op.round(divided)
    shifted = rounded if zero is None else relax.op.add(rounded, zero)
    least, most = (relax.const(limit, "float32") for limit in LIMITS[str(call.ty.dtype)])
    # Layout changes pass through these operators, but not through a clip.
    clamped = relax.op.minimum(relax.op.maximum(shifted, least), most)
    return relax.op.astype(relax.op.astype(clamped, "int32"), call.ty.dtype)


def _real(zero: Any, g: Graph) -> Any | None:
    """Return a zero point as a float, or None if it is zero."""
    if not g.is_constant(zero):
        return relax.op.astype(zero, "float32")
    array = g.array(zero).astype("float32")
    return relax.const(array) if array.any() else None


def _along(call: Any, value: Any, g: Graph) -> Any:
    """Reshape a scale or zero point so that it broadcasts along the call's axis."""
    if not value.ty.ndim:
        return value
    ndim, axis = call.args[0].ty.ndim, int(call.attrs.axis) % call.args[0].ty.ndim
    shape = [-1 if at == axis else 1 for at in range(ndim)]
    return (
        relax.const(g.array(value).reshape(shape)) if g.is_constant(value) else relax.op.reshape(value, shape)
    )
