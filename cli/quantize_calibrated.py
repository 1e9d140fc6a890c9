"""onnxruntime's quantiser, with a user's samples: what is quantised, and what that costs in accuracy."""

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import onnx
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from cli.quantize_samples_and_error import Quantised, Sample, errors_of, read_network, read_samples
from mallorn.core.errors import InvalidModel

OLDEST_OPSET: Final = 13  # scales of each channel
PRODUCTS: Final = ("MatMul", "Gemm")


def quantised(model: Path, data: Path, output: Path) -> Quantised:
    """Write the quantised model. Raises InvalidModel or InvalidRequest."""
    network = _read(model)
    samples = list(read_samples(network, data))
    with TemporaryDirectory(prefix="mallorn-quantize-") as folder:
        real, whole = Path(folder, "real.onnx"), Path(folder, "quantised.onnx")
        try:
            quant_pre_process(str(model), str(real), skip_symbolic_shape=True)
            _quantise(real, whole, samples)
            errors = errors_of(model, whole, samples)
        except InvalidModel:
            raise
        except Exception as error:  # onnxruntime raises what it likes
            raise InvalidModel(
                f"onnxruntime cannot quantise {model}: {str(error).strip().splitlines()[0][:300]}",
                hint="check-model MODEL   (it comes with the package onnx)",
            ) from error
        shutil.copyfile(whole, output)
    return Quantised(len(samples), output.stat().st_size, model.stat().st_size, errors)


def _read(model: Path) -> Any:
    network = read_network(model)
    opset = max(
        (entry.version for entry in network.opset_import if entry.domain in ("", "ai.onnx")), default=0
    )
    if opset < OLDEST_OPSET:
        raise InvalidModel(
            f"{model} is of opset {opset}; scales of each channel came with {OLDEST_OPSET}",
            hint="export it as a newer one, e.g. torch.onnx.export(..., opset_version=17)",
        )
    return network


class _SampleReader(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: Sequence[Sample]) -> None:
        self._left = iter(samples)

    def get_next(self) -> Sample | None:
        return next(self._left, None)


def _quantise(real: Path, whole: Path, samples: Sequence[Sample]) -> None:
    """QDQ, bytes without a sign for data and with one for weights, as processors multiply them."""
    nodes = onnx.load(str(real)).graph
    constant = {tensor.name for tensor in nodes.initializer}
    loose = [node.name for node in nodes.node if node.op_type == "MatMul" and node.input[1] not in constant]
    products = sum(node.op_type in PRODUCTS for node in nodes.node) - len(loose)
    convolutions = sum(node.op_type == "Conv" for node in nodes.node)
    if not products + convolutions:
        raise InvalidModel(
            "the model has no convolution and no product with constant weights",
            hint="there is nothing to gain",
        )
    with _without_advice():
        quantization.quantize_static(
            str(real),
            str(whole),
            _SampleReader(samples),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=None if convolutions > products else ["Conv", *PRODUCTS],
            nodes_to_exclude=loose,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )


@contextmanager
def _without_advice() -> Iterator[None]:
    """onnxruntime's quantiser writes advice for its own users to the root logger itself."""
    root = logging.getLogger()
    root.addFilter(_is_error)
    try:
        yield
    finally:
        root.removeFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR
