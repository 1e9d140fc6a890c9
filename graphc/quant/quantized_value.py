"""Real numbers as they are stored where a network is quantized: whole numbers, scales and zero points."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from graphc.core.graph import Graph

BYTES = ("int8", "uint8")
LIMITS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}


@dataclass(frozen=True)
class QuantizedValue:
    """value = (data - zero) * scale, of each place along the axis or of all."""

    data: Any
    scale: Any
    zero: Any
    axis: int

    @property
    def same(self) -> bool:
        """Whether all have one scale."""
        return bool(self.scale.ndim == 0)

    @property
    def constant(self) -> bool:
        return isinstance(self.data, tvm.ir.GenericConst)

    @property
    def dtype(self) -> str:
        return str(self.data.ty.dtype)

    def like(self, other: "QuantizedValue") -> bool:
        """Whether the same bytes are the same numbers."""
        alike = self.dtype == other.dtype and self.same and other.same
        return bool(alike and self.scale == other.scale and self.zero == other.zero)

    def decode(self) -> Any:
        """The call that makes real numbers of it."""
        zero, scale = (relax.const(value) for value in (self.zero, self.scale))
        return relax.op.dequantize(self.data, scale, zero, axis=self.axis, out_dtype="float32")


def quantized_value(value: Any, g: Graph) -> QuantizedValue | None:
    """What a value was decoded from, if its scales and zero points are constants."""
    found = g.producer(value, "relax.dequantize")
    if found is None or found.ty.dtype != "float32":
        return None
    data, scale, zero = found.args
    if not (g.is_constant(scale) and g.is_constant(zero)):
        return None
    return QuantizedValue(data, g.array(scale), g.array(zero), int(found.attrs.axis))
