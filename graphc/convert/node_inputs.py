"""Helpers with which converters read the inputs of an ONNX node."""

from typing import Any

import tvm
from tvm.relax.frontend.onnx import onnx_frontend


def constant_array(value: Any, params: Any) -> Any | None:
    constant = onnx_frontend.get_constant(value, params) if value is not None else None
    return constant.value.numpy() if isinstance(constant, tvm.ir.GenericConst) else None


def first_inputs(inputs: Any, count: int) -> list[Any]:
    """Return the first `count` inputs; None for those that are missing."""
    return [inputs[index] if index < len(inputs) else None for index in range(count)]
