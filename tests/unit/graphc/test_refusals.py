"""What TVM cannot convert is named as the model's author knows it."""

import numpy as np
import pytest
from onnx import helper, save
from tvm import relax

from mallorn.core.errors import InvalidModel
from mallorn.workers.tvm.network.extract_tasks import extract
from mallorn.workers.tvm.network.graph_recipes import TUNED, skipped_passes
from mallorn.workers.tvm.network.import_onnx_to_relax import unsized_node
from tests.fixtures.onnx_network import onnx_network

TARGET = '{"kind":"llvm","num-cores":2}'


def sliced_by_data(input_shape):
    """A model whose second output size is an input's value."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Slice", ["a", "start", "end"], ["b"], name="crop"),
        helper.make_node("ReduceSum", ["b"], ["y"], keepdims=1),
    ]
    inputs = {"x": input_shape, "end": np.array([0])}
    return onnx_network(nodes, inputs, {"y": [1, 1]}, opset=13, start=np.array([0]))


@pytest.mark.parametrize("shapes", [{}, {"x": [1, 8]}])
def test_an_assertion_of_tvms_becomes_the_node_that_it_cannot_convert(tmp_path, shapes, monkeypatch):
    def fail(_self, _mod):
        raise AssertionError("emit_te now only supports Tensor that has ShapeExpr shape")

    monkeypatch.setattr(relax.transform, "LegalizeOps", lambda: type("Pass", (), {"__call__": fail})())
    path = tmp_path / "model.onnx"
    save(sliced_by_data(["batch", 8] if shapes else [1, 8]), path)
    with pytest.raises(InvalidModel, match=r"the operator Slice \(node 'crop'\)") as caught:
        extract(str(path), TARGET, TUNED, shapes)
    assert "emit_te now only supports" in caught.value.message
    assert "fixed sizes" in caught.value.hint


def test_a_size_that_an_input_decides_is_imported_without_the_pass_that_does_not_take_it(tmp_path):
    path = tmp_path / "model.onnx"
    save(sliced_by_data([1, 8]), path)
    graph = extract(str(path), TARGET, TUNED, {}).graph
    assert skipped_passes(graph.recipe).keys() == {"fold_constant_operators"}
    assert "dynamic_strided_slice" in {name.rstrip("0123456789") for name in graph.operators_after}


def test_a_model_of_fixed_sizes_has_no_node_to_name():
    model = sliced_by_data([1, 8])
    del model.graph.node[1:]
    model.graph.output[0].name = "a"
    assert unsized_node(model) is None
