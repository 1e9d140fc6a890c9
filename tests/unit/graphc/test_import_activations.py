"""Activations stand between convolutions without transposes, and are what ONNX says."""

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from mallorn.graphc.convert.register_converters import CONVERTERS
from mallorn.graphc.core import pass_runner
from mallorn.graphc.export import compile_network
from mallorn.workers.tvm.network.graph_recipes import TUNED
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import HASWELL, random, run, run_onnxruntime
from tests.unit.graphc.pass_conformance import operators

SIZES = (1, 16, 7, 7)
WEIGHTS = random(16, 16, 3, 3) * np.float32(0.1)
ATTRIBUTES: dict[str, dict[str, float]] = {
    "Celu": {"alpha": 1.5},
    "Elu": {"alpha": 0.5},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.25},
    "Selu": {"alpha": 1.5, "gamma": 1.25},
    "Shrink": {"lambd": 0.25, "bias": 0.125},
    "ThresholdedRelu": {"alpha": 0.25},
}
SEVERAL = ("Max", "Mean", "Min", "Sum")
TARGET = tvm.target.Target(HASWELL)


def convolution(source: str, result: str) -> Any:
    return helper.make_node("Conv", [source, "weights"], [result], pads=[1, 1, 1, 1])


def between_convolutions(operator: str) -> Any:
    """The operator between two; those that take several operands have a third beside it, and a number."""
    operands = ["a", "b", "number"] if operator in SEVERAL else ["a"]
    nodes = [convolution("x", "a"), *([convolution("a", "b")] if operator in SEVERAL else [])]
    nodes += [
        helper.make_node(operator, operands, ["c"], **ATTRIBUTES.get(operator, {})),
        convolution("c", "y"),
    ]
    number = np.array([0.25], "float32")
    return onnx_network(nodes, {"x": SIZES}, {"y": SIZES}, opset=22, weights=WEIGHTS, number=number)


@pytest.mark.parametrize("operator", CONVERTERS)
def test_an_activation_takes_part_in_a_change_of_layout(operator: str) -> None:
    mod = compile_network.import_graph(between_convolutions(operator), {}, TARGET)
    steps = TUNED.model_dump()["before"]
    layout = next(at for at, step in enumerate(steps) if step["pass"] == "relax.transform.ConvertLayout")
    after, _ = pass_runner.run_passes(mod, steps[: layout + 2], TARGET)
    assert operators(after).count("permute_dims") == 2, "of the input and the result alone"


@pytest.mark.parametrize("operator", CONVERTERS)
def test_an_activation_computes_what_onnx_says(operator: str) -> None:
    model, x = between_convolutions(operator), random(*SIZES)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    mod = compile_network.import_graph(onnx.ModelProto.FromString(model.SerializeToString()), {}, TARGET)
    np.testing.assert_allclose(run(mod, x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", ["Max", "Sum"])
def test_a_single_operand_is_itself(operator: str) -> None:
    x = relax.Var("x", relax.TensorType((3, 2), "float32"))
    assert CONVERTERS[operator](relax.BlockBuilder(), [x], {}, {}).same_as(x)


def test_a_sigmoid_of_very_negative_numbers_is_nearer_to_float64_than_onnxruntime() -> None:
    model = onnx_network([helper.make_node("Sigmoid", ["x"], ["y"])], {"x": [64]}, {"y": [64]})
    x = np.linspace(-45, -11, 64, dtype="float32")
    exact = 1 / (1 + np.exp(-x.astype("float64")))
    np.testing.assert_allclose(run(compile_network.import_graph(model, {}, TARGET), x), exact, rtol=1e-5)
    assert np.abs(run_onnxruntime(model, x)[0] - exact).max() > 1e-3 * exact.max()
