"""Replace the remaining quantize and dequantize operators by plain arithmetic."""

from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.quant.int8_instructions import required_instruction
from mallorn.graphc.quant.quantized_value import LIMITS


class QuantizeToArithmetic(Pass[None]):
    """Writes the remaining quantize and dequantize operators as arithmetic that TVM can fuse."""

    name, match = "quantize_to_arithmetic", ("relax.dequantize", "relax.quantize")
    dtype = ""
    after = ("compute_in_integers",)

    def check(self, call: Any, g: Graph) -> None:
        required_instruction()
        decodes = operator_name(call) == "relax.dequantize"
        real, integer = (call, call.args[0]) if decodes else (call.args[0], call)
        if real.ty.dtype != "float32" or (not decodes and str(integer.ty.dtype) not in LIMITS):
            raise Leave(f"the operator converts {call.args[0].ty.dtype} to {call.ty.dtype}")

    def rewrite(self, call: Any, facts: None, g: Graph) -> Any:
        data, scale, zero = call.args
        # Reshape scale and zero point so that they broadcast along the call's axis.
        axis = int(call.attrs.axis) % data.ty.ndim if scale.ty.ndim or zero.ty.ndim else 0
        shape = [-1 if dim == axis else 1 for dim in range(data.ty.ndim)]
        scale, zero = (
            value
            if not value.ty.ndim
            else relax.const(g.array(value).reshape(shape))
            if g.is_constant(value)
            else relax.op.reshape(value, shape)
            for value in (scale, zero)
        )
        if not g.is_constant(zero):
            zero = relax.op.astype(zero, "float32")
        elif g.array(zero).any():
            zero = relax.const(g.array(zero).astype("float32"))
        else:
            zero = None
        if operator_name(call) == "relax.dequantize":
            wide = relax.op.astype(data, "float32")
            return relax.op.multiply(wide if zero is None else relax.op.subtract(wide, zero), scale)

        # Scale, round to even, add the zero point and clamp to the type's range.
        scaled = relax.op.divide(data, scale)
        if g.is_constant(scale):
            scaled = relax.op.multiply(data, relax.const(np.float32(1) / g.array(scale)))
        result = relax.op.round(scaled)
        if zero is not None:
            result = relax.op.add(result, zero)
        lowest, highest = (relax.const(limit, "float32") for limit in LIMITS[str(call.ty.dtype)])
        # Layout changes pass through these operators, but not through a clip.
        result = relax.op.minimum(relax.op.maximum(result, lowest), highest)
        return relax.op.astype(relax.op.astype(result, "int32"), call.ty.dtype)
