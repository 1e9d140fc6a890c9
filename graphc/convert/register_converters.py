"""What TVM's ONNX importer lacks, or has too narrow: converters of ours, from files beside this one.

Such a file has a table `CONVERTERS`: by the operator's name a function of the importer's builder, the node's
inputs, its attributes and the importer's parameters, which returns the result, or a tuple of them. It raises
ValueError for forms that it does not know.
"""

from collections.abc import Callable
from typing import Any

from tvm.relax.frontend.onnx import onnx_frontend

from graphc.convert import (
    import_activations,
    import_block_quantized_weights,
    import_lstm_gru_rnn,
    import_quantized_operators,
)

Convert = Callable[[Any, Any, Any, Any], Any]
_FILES = (import_activations, import_lstm_gru_rnn, import_quantized_operators, import_block_quantized_weights)


def teach() -> None:
    """Make the importer use them, from now on; it has no registry but a function of its table."""
    if not hasattr(onnx_frontend, "_untaught_convert_map"):
        onnx_frontend._untaught_convert_map = onnx_frontend._get_convert_map
        onnx_frontend._get_convert_map = _taught


def _taught() -> dict[str, Any]:
    return {**onnx_frontend._untaught_convert_map(), **_TYPES}


def _type(kind: str, convert: Convert) -> type:
    def answer(_: Any, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
        return convert(builder, inputs, attrs, params)

    return type(kind, (onnx_frontend.OnnxOpConverter,), {"_impl_v1": classmethod(answer)})


# They go before TVM's.
_TYPES = {kind: _type(kind, convert) for file in _FILES for kind, convert in file.CONVERTERS.items()}
