"""What a node of ONNX was given, as converters ask for it."""

from typing import Any

import tvm
from tvm.relax.frontend.onnx import onnx_frontend


def array_of(value: Any, params: Any) -> Any | None:
    """A constant as an array; None for what is computed or not given."""
    constant = onnx_frontend.get_constant(value, params) if value is not None else None
    return constant.value.numpy() if isinstance(constant, tvm.ir.GenericConst) else None


def padded(inputs: Any, count: int) -> list[Any]:
    """So many inputs, None for those that were left out."""
    return [inputs[at] if at < len(inputs) else None for at in range(count)]
