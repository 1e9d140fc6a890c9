"""Importing an ONNX file: inputs, outputs, shapes, and refusals with the next command."""

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper

from mallorn.core.errors import InvalidModel
from mallorn.core.values.graph_report import TensorSpec
from mallorn.workers.tvm.network.import_onnx_to_relax import ImportedModel, load_network

Build = Callable[..., ModelProto]
Load = Callable[..., ImportedModel]


@pytest.fixture
def load(build_model: Build, tmp_path: Path) -> Load:
    def build_and_load(input_shapes: dict[str, list[int]] | None = None, **model: object) -> ImportedModel:
        path = tmp_path / "model.onnx"
        path.write_bytes(build_model(**model).SerializeToString())
        return load_network(path, input_shapes)

    return build_and_load


def test_weights_are_bound_and_inputs_remain(load: Load) -> None:
    network = load()
    assert network.inputs == [TensorSpec(name="x", dtype="float32", shape=[4, 8])]
    assert network.outputs == [TensorSpec(name="y", dtype="float32", shape=[4, 8])]
    assert network.operators == {"MatMul": 1}
    assert len(network.mod["main"].params) == 1


def test_weights_listed_among_the_inputs_are_no_inputs(build_model: Build, tmp_path: Path) -> None:
    model = build_model()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (8, 8)))
    path = tmp_path / "old.onnx"
    path.write_bytes(model.SerializeToString())
    assert [spec.name for spec in load_network(path).inputs] == ["x"]


def test_free_dimensions_are_named_with_how_to_bind_them(load: Load) -> None:
    with pytest.raises(InvalidModel, match=r"x \[batch, 8\]") as caught:
        load(shape=("batch", 8))
    assert "--input-shape x:1,8   or, for a range,  --dynamic batch=1..64" in caught.value.hint
    assert caught.value.suggest == {"input_shapes": {"x": [1, 8]}}


def test_binding_a_free_dimension_fixes_every_shape(load: Load) -> None:
    network = load({"x": [3, 8]}, shape=("batch", 8))
    assert [spec.shape for spec in (*network.inputs, *network.outputs)] == [[3, 8], [3, 8]]


def test_binding_an_unknown_input_lists_the_known_ones(load: Load) -> None:
    with pytest.raises(InvalidModel, match="no input 'z'") as caught:
        load({"z": [1]})
    assert caught.value.hint == "the inputs are x"


def test_binding_another_rank_is_refused(load: Load) -> None:
    with pytest.raises(InvalidModel, match="2 dimensions, not 3"):
        load({"x": [1, 2, 3]})


def test_what_the_converter_refuses_is_named(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidModel, match="TVM cannot import") as caught:
        load(nodes=[helper.make_node("MatMul", ["x", "w"], ["y"])], shape=(4, 5))
    assert caught.value.hint
    assert capsys.readouterr().out == "", "a child's stdout belongs to its protocol"


def test_shapes_that_depend_on_data_are_refused(load: Load) -> None:
    with pytest.raises(InvalidModel, match="'y'"):
        load(nodes=[helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Cast", ["i"], ["y"], to=1)])
