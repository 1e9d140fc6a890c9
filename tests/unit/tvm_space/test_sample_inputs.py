"""Inputs that a user gives for checks: one draw or several, of the names, types and shapes of the model."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mallorn.core.errors import InvalidModel
from mallorn.workers.tvm.model_compiler_child import split_samples

X = np.ones((1, 4), "float32")
N = np.array([3])


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model of two inputs, one of which has a free dimension."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"]), helper.make_node("Identity", ["n"], ["m"])],
        "two inputs",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "time"]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("m", TensorProto.INT64, None),
        ],
    )
    onnx.save(helper.make_model(graph), path := tmp_path / "model.onnx")
    return str(path)


def split(model: str, **arrays: Any) -> list[str]:
    folder = Path(model).parent
    np.savez(folder / "given.npz", **arrays)
    return split_samples(model, str(folder / "given.npz"), str(folder), {"x": [1, 4]})


def test_one_draw_is_written_in_the_order_of_the_inputs(model: str) -> None:
    [path] = split(model, n=N, x=X)
    with np.load(path) as draw:
        assert draw.files == ["x", "n"]


def test_several_draws_are_written_by_their_numbers(model: str) -> None:
    draws = split(model, **{"1/x": X * 2, "1/n": N, "0/x": X, "0/n": N})
    first_numbers = []
    for path in draws:
        with np.load(path) as draw:
            first_numbers.append(float(draw["x"][0, 0]))
    assert first_numbers == [1.0, 2.0]


def test_the_inputs_of_a_region_are_what_onnxruntime_computes_for_them(tmp_path: Path) -> None:
    def save(name: str, nodes: list[Any], given: str, made: str) -> str:
        ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [1, 4]) for end in (given, made)]
        graph = helper.make_graph(nodes, name, ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, path := tmp_path / f"{name}.onnx")
        return str(path)

    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Exp", ["a"], ["y"])]
    model, region = save("whole", nodes, "x", "y"), save("part", nodes[1:], "a", "y")
    np.savez(given := tmp_path / "given.npz", x=X)
    [path] = split_samples(model, str(given), str(tmp_path), {}, region)
    with np.load(path) as draw:
        assert draw.files == ["a"]
        np.testing.assert_array_equal(draw["a"], -X)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        pytest.param({"x": X}, "draw 0 .* lacks n; the model takes x, n", id="one is missing"),
        pytest.param({"x": X, "n": N, "z": N}, "draw 0 .* has z", id="one is unknown"),
        pytest.param({"0/x": X, "0/n": N, "1/x": X}, "draw 1 .* lacks n", id="a draw lacks one"),
        pytest.param({"x": X[:, :3], "n": N}, r"'x' of draw 0 is float32 \[1, 3\]; .* \[1, 4\]", id="shape"),
        pytest.param({"x": X.astype("float64"), "n": N}, "is float64", id="type"),
        pytest.param({"x": np.array([{}]), "n": N}, "no npz of arrays", id="objects"),
    ],
)
def test_what_is_not_the_models_is_refused(model: str, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidModel, match=words) as refusal:
        split(model, **arrays)
    assert refusal.value.hint


def test_another_file_is_refused(model: str) -> None:
    (file := Path(model).with_name("given.npz")).write_bytes(b"no archive")
    with pytest.raises(InvalidModel, match="no npz of arrays"):
        split_samples(model, str(file), str(file.parent), {})
