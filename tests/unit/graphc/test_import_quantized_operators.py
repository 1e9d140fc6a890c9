"""Quantised files, as onnxruntime's tools write them: imported with onnxruntime's numbers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.onnx_network import onnx_network, saved
from tests.unit.graphc.networks import run, run_onnxruntime

quantization = pytest.importorskip("onnxruntime.quantization")
MICROSOFT = "com.microsoft"


def drawn(seed: int, **shapes: tuple[int, ...]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) / 3).astype("float32") for name, shape in shapes.items()}


def pictures(opset: int) -> onnx.ModelProto:
    """A small residual network: plain, grouped and depthwise convolutions, pools, a dense layer."""
    kernels = {"w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 1, 3, 3), "w3": (10, 16)}
    weights = drawn(5, **kernels, b0=(16,), b1=(16,), b3=(10,))
    node, pads = helper.make_node, [1, 1, 1, 1]
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=pads, strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], pads=pads, strides=[1, 1]),
        node("Conv", ["p0", "w1", "b1"], ["c1"], pads=pads),
        node("Add", ["c1", "p0"], ["s1"]),
        node("Conv", ["s1", "w2"], ["c2"], pads=pads, group=16),
        node("LeakyRelu", ["c2"], ["r2"], alpha=0.1),
        node("Concat", ["r2", "s1"], ["k"], axis=1),
        node("Sigmoid", ["k"], ["g"]),
        node("Mul", ["k", "g"], ["m"]),
        node("AveragePool", ["m"], ["a"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Slice", ["a", "from", "to", "axis"], ["t"]),
        node("GlobalAveragePool", ["t"], ["q"]),
        node("Flatten", ["q"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    bounds = {"from": [0], "to": [16], "axis": [1]}
    return onnx_network(nodes, {"x": [1, 3, 16, 16]}, {"y": [1, 10]}, opset=opset, **weights, **bounds)


def words(opset: int) -> onnx.ModelProto:
    """Products of a sequence: with weights, and of two computed factors."""
    weights = drawn(6, w0=(32, 32), w1=(32, 32), w2=(32, 32), b=(32,))
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["q"]),
        node("MatMul", ["x", "w1"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "x"], ["o"]),
        node("MatMul", ["o", "w2"], ["d"]),
        node("Add", ["d", "b"], ["y"]),
    ]
    return onnx_network(nodes, {"x": [2, 7, 32]}, {"y": [2, 7, 32]}, opset=opset, **weights)


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        self._left: Iterator[Any] = iter([{"x": sample(shape, seed)} for seed in range(4)])

    def get_next(self) -> Any:
        return next(self._left, None)


def sample(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def near(path: str | Path, x: Any, *, steps: int = 2) -> None:
    """The same numbers, but for what rounds the other way at a few places, and what follows from those."""
    (wanted,) = run_onnxruntime(path, x, fused=False)
    found = run(load_network(path).mod, x)
    assert found.dtype == wanted.dtype
    error = np.abs(found.astype("float64") - wanted.astype("float64"))
    assert error.mean() <= steps * np.abs(wanted).max() / 255


NETWORKS = {"pictures": (pictures, (1, 3, 16, 16)), "words": (words, (2, 7, 32))}
QDQ, QLINEAR = quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator
U8, S8 = quantization.QuantType.QUInt8, quantization.QuantType.QInt8


def quantised(
    folder: Path,
    network: str,
    form: Any,
    data: Any,
    weights: Any = S8,
    channels: bool = True,
    opset: int = 17,
) -> Path:
    """A network of this file, quantised by samples."""
    make, shape = NETWORKS[network]
    onnx.save(make(opset), folder / "real.onnx")
    quantization.quantize_static(
        folder / "real.onnx",
        folder / "quantised.onnx",
        Samples(shape),
        quant_format=form,
        per_channel=channels,
        activation_type=data,
        weight_type=weights,
    )
    return folder / "quantised.onnx"


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("form", [QDQ, QLINEAR], ids=["QDQ", "QLinear"])
@pytest.mark.parametrize(
    ("data", "weights", "channels", "opset"),
    [(U8, S8, True, 13), (U8, U8, False, 17), (S8, S8, True, 17), (S8, S8, False, 21)],
    ids=["u8s8", "u8u8", "s8s8", "s8s8-21"],
)
def test_static_quantisation(tmp_path, network, form, data, weights, channels, opset):
    path = quantised(tmp_path, network, form, data, weights, channels, opset)
    near(path, sample(NETWORKS[network][1], 1))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("weights", [U8, S8], ids=["u8", "s8"])
@pytest.mark.parametrize("channels", [True, False], ids=["per channel", "per tensor"])
def test_dynamic_quantisation(tmp_path, network, weights, channels):
    make, shape = NETWORKS[network]
    onnx.save(make(17), tmp_path / "real.onnx")
    quantization.quantize_dynamic(
        tmp_path / "real.onnx", tmp_path / "quantised.onnx", weight_type=weights, per_channel=channels
    )
    near(tmp_path / "quantised.onnx", sample(shape, 1))


def byte_weights(*shape: int) -> Any:
    return np.random.default_rng(4).integers(-100, 100, shape).astype("int8")


NUMBERS: dict[str, Any] = {
    "s": np.float32(0.02),
    "z": np.uint8(117),
    "columns": np.array([0.01] * 9, "float32"),
    "zeros": np.zeros(9, "int8"),
    "none": np.int8(0),
    "three": np.int8(3),
    "bias": np.ones(9, "float32"),
    "sums": np.arange(9, dtype="int32") * 100,
    "qkv": np.linspace(-1, 1, 36, dtype="float32"),
    "w": byte_weights(12, 9),
    "wt": byte_weights(9, 12),
    "wqkv": byte_weights(12, 36),
}
FUSED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "DynamicQuantizeMatMul": (["x", "w", "columns", "zeros", "bias"], {}),
    "MatMulIntegerToFloat": (["q", "w", "s", "s", "z", "three"], {}),
    "QGemm": (["q", "s", "z", "wt", "s", "none", "sums"], {"transB": 1, "alpha": 0.5}),
    "QAttention": (["q", "wqkv", "qkv", "s", "s", "", "z", "none"], {"num_heads": 3}),
}


@pytest.mark.parametrize("kind", FUSED)
def test_what_onnxruntime_fuses(tmp_path, kind):
    given, attrs = FUSED[kind]
    x, width = ((2, 5, 12), 12) if kind == "QAttention" else ((2, 12), 9)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node(kind, given, ["y"], domain=MICROSOFT, **attrs),
    ]
    weights = {name: np.asarray(NUMBERS[name]) for name in {*given, "s", "z"} & NUMBERS.keys()}
    near(saved(tmp_path / "fused.onnx", nodes, {"x": x}, {"y": (*x[:-1], width)}, **weights), sample(x, 3))


def test_a_scale_in_a_vector_of_one_number_is_that_number(tmp_path):
    numbers = {"s": np.array([0.02], "float32"), "z": np.array([117], "uint8")}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    near(saved(tmp_path / "vector.onnx", nodes, {"x": (2, 3)}, {"y": (2, 3)}, **numbers), sample((2, 3), 1))


@pytest.mark.parametrize(("group", "inputs"), [(1, 4), (2, 2), (4, 1)])
def test_convolutions_of_integers_with_zero_points(tmp_path, group, inputs):
    numbers = {"w": byte_weights(4, inputs, 3, 3), "s": np.float32(0.02), "z": np.uint8(90), "wz": np.int8(5)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"], pads=[1, 1, 1, 1], group=group),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    path = saved(tmp_path / "integers.onnx", nodes, {"x": (1, 4, 6, 6)}, {"y": (1, 4, 6, 6)}, **numbers)
    near(path, sample((1, 4, 6, 6), 1), steps=0)
