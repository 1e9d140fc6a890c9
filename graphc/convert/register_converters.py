"""Register converters for operators that TVM's ONNX importer lacks or supports only in part.

Each file of converters has a dict `CONVERTERS` from operator names to functions. A function
takes the importer's builder, the node's inputs and attributes, and the importer's
parameters. It returns one or more results, or raises ValueError for unsupported forms.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from mallorn.graphc.convert import import_activations, import_lstm_gru_rnn, import_quantized_operators

Convert = Callable[[Any, Any, Any, Any], Any]
_FILES = (import_activations, import_lstm_gru_rnn, import_quantized_operators)


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
_TYPES = {kind: _type(kind, convert) for file in _FILES for kind, convert in file.CONVERTERS.items()}


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
