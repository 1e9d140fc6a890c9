"""Indices of a Gather counted from the front, without operators where sizes and indices are known.

TVM's importer writes three operators on constants for every Gather, and FoldConstant compiles each of them by
itself: minutes for a graph that was unrolled.
"""

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend


def teach() -> None:
    """Make the importer's converters use this, from now on."""
    if not hasattr(onnx_frontend, "_asked_extent"):
        onnx_frontend._asked_extent = onnx_frontend._axis_extent
        onnx_frontend._wrapped_indices = onnx_frontend._normalize_negative_indices
        onnx_frontend._axis_extent = _extent
        onnx_frontend._normalize_negative_indices = _from_the_front


def _extent(builder: Any, data: Any, axis: int, kind: str) -> Any:
    """The size of an axis: a constant, where the shape says it."""
    shape = data.ty.shape
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if isinstance(size, tvm.tirx.IntImm):
        return relax.const(int(size), kind)
    return onnx_frontend._asked_extent(builder, data, axis, kind)


def _from_the_front(builder: Any, indices: Any, extent: Any) -> Any:
    """Indices that all count from the front."""
    constants = [value for value in (indices, extent) if isinstance(value, tvm.ir.GenericConst)]
    if len(constants) < len((indices, extent)):
        return onnx_frontend._wrapped_indices(builder, indices, extent)
    given, size = (value.value.numpy() for value in constants)
    return relax.const(np.where(given < 0, given + size, given).astype(given.dtype))
