"""Quantised files as PyTorch's and OpenVINO's tools write them: their products are of integers too."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

pytest.importorskip("onnxruntime")
from mallorn.workers.tvm.network.run_recipe_passes import count_operators
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.test_compute_in_integers import lowered, near
from tests.unit.graphc.test_import_quantized_operators import sample

CHANNELS, SHAPE = 16, (1, 16, 8, 8)


class Written:
    """Networks in QDQ, in one tool's words."""

    def __init__(self, data: str, **form: bool) -> None:
        self.data, self.form = np.dtype(data), form
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._rng = np.random.default_rng(11)

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = value
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attrs: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], **attrs))
        return name

    def pair(self, value: str, name: str, scale: Any, zero: Any, **attrs: Any) -> str:
        """Encoded and decoded, as a FakeQuantize is exported."""
        by = [self.constant(f"{name}_scale", scale), self.constant(f"{name}_zero", zero)]
        stored = self.node("QuantizeLinear", [value, *by], f"{name}_stored", **attrs)
        if self.form.get("narrow") and np.asarray(zero).dtype == np.uint8:
            limits = [self.constant(f"{name}_{at}", np.array(at, "uint8")) for at in (0, 127)]
            stored = self.node("Clip", [stored, *limits], f"{name}_narrow")
        return self.node("DequantizeLinear", [stored, *by], f"{name}_real", **attrs)

    def activation(self, value: str, name: str) -> str:
        zero = np.array(0 if self.data == np.int8 else 61, self.data)
        scale = np.float32(0.05)
        if self.form.get("vectors"):
            return self.pair(value, name, scale.reshape(1), zero.reshape(1))
        return self.pair(value, name, scale, zero)

    def weights(self, name: str, *shape: int) -> str:
        """Real numbers in the file, encoded where they are read: a scale for each output, or one."""
        values = (self._rng.standard_normal(shape) / 12).astype("float32")
        each = () if self.form.get("whole") else (len(values),)
        scale = np.abs(values).reshape(*each, -1).max(axis=-1) / np.float32(127)
        axis = {"axis": 0} if each else {}
        stored = self.constant(name, values)
        return self.pair(stored, f"{name}_q", scale.astype("float32"), np.zeros(each, "int8"), **axis)

    def bias(self, name: str) -> str:
        bias = self._rng.standard_normal(CHANNELS).astype("float32")
        if not self.form.get("biases"):
            return self.constant(name, bias)
        stored = self.constant(name, np.rint(bias / 0.001).astype("int32"))
        scale = self.constant(f"{name}_scale", np.full(CHANNELS, 0.001, "float32"))
        return self.node("DequantizeLinear", [stored, scale], f"{name}_real", axis=0)

    def convolution(self, value: str, name: str) -> str:
        factors = [value, self.weights(f"{name}_w", CHANNELS, CHANNELS, 3, 3), self.bias(f"{name}_b")]
        return self.node("Conv", factors, name, pads=[1, 1, 1, 1])

    def linear(self) -> onnx.ModelProto:
        factors = [self.activation("x", "start"), self.weights("w", CHANNELS, 32), self.bias("b")]
        found = self.node("Gemm", factors, "product", transB=1)
        self.node("Identity", [self.activation(found, "end")], "y")
        return onnx_network(self.nodes, {"x": [4, 32]}, {"y": [4, CHANNELS]}, **self.constants)

    def residual(self) -> onnx.ModelProto:
        start = self.activation("x", "start")
        inner, steps = self.convolution(start, "first"), "inner"
        if self.form.get("late"):
            inner = self.node("Relu", [self.activation(inner, steps)], "relu")
        else:
            inner = self.activation(self.node("Relu", [inner], "relu"), steps)
        outer = self.convolution(inner, "second")
        both = self.node("Add", [self.activation(outer, "outer"), start], "both")
        self.node("Identity", [self.activation(both, "end")], "y")
        return onnx_network(self.nodes, {"x": SHAPE}, {"y": SHAPE}, **self.constants)


@pytest.mark.parametrize(
    "form",
    [{}, {"whole": True}, {"biases": True}, {"vectors": True}, {"late": True}],
    ids=["of each output", "of a tensor", "biases in 32 bits", "scales as vectors", "activations behind"],
)
@pytest.mark.parametrize("data", ["uint8", "int8"])
def test_weights_may_be_encoded_in_the_file(tmp_path: Path, data: str, form: dict[str, bool]) -> None:
    assert_integers(tmp_path / "model.onnx", Written(data, **form).residual(), SHAPE, 2)


@pytest.mark.parametrize("whole", [False, True], ids=["of each output", "of a tensor"])
def test_weights_of_a_linear_layer_are_transposed_at_once(tmp_path: Path, whole: bool) -> None:
    assert_integers(tmp_path / "model.onnx", Written("uint8", whole=whole).linear(), (4, 32), 1)


def test_seven_bits_are_limits_of_the_bytes(tmp_path: Path) -> None:
    assert_integers(tmp_path / "model.onnx", Written("uint8", narrow=True).residual(), SHAPE, 2)


def assert_integers(path: Path, model: onnx.ModelProto, shape: tuple[int, ...], products: int) -> None:
    onnx.save(model, path)
    mod = lowered(path)
    assert sum(count for name, count in count_operators(mod).items() if "int8_" in name) == products
    near(path, mod, sample(shape, 1))
