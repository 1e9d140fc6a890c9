"""Values of a quantised network as integers with scales and zero points."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph

BYTES = ("int8", "uint8")
LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


@dataclass(frozen=True)
class QuantizedValue:
    """Integers that stand for (data - zero) * scale; scales may vary along `axis`."""

    data: Any
    scale: Any
    zero: Any
    axis: int

    @property
    def has_one_scale(self) -> bool:
        """True if all numbers share one scale."""
        return bool(self.scale.ndim == 0)

    @property
    def is_constant(self) -> bool:
        return isinstance(self.data, tvm.ir.GenericConst)

    @property
    def dtype(self) -> str:
        return str(self.data.ty.dtype)

    def has_same_code(self, value: "QuantizedValue") -> bool:
        """Return whether equal bytes of both values stand for equal numbers."""
        is_comparable = self.dtype == value.dtype and self.has_one_scale and value.has_one_scale
        return bool(is_comparable and self.scale == value.scale and self.zero == value.zero)

    def decode(self) -> Any:
        zero, scale = (relax.const(value) for value in (self.zero, self.scale))
        return relax.op.dequantize(self.data, scale, zero, axis=self.axis, out_dtype="float32")


def quantized_value(value: Any, g: Graph) -> QuantizedValue | None:
    """Return the integers that a value is decoded from with constant scales, else None."""
    call = g.producer(value, "relax.dequantize")
    if call is None or call.ty.dtype != "float32":
        return None
    data, scale, zero = call.args
    if not (g.is_constant(scale) and g.is_constant(zero)):
        return None
    return QuantizedValue(data, g.array(scale), g.array(zero), int(call.attrs.axis))
