"""A wrong result is traced to the node whose import is wrong; faults are planted in converters."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm.relax.frontend.onnx import onnx_frontend

from mallorn.workers.tvm.compile import bisect_import as module
from mallorn.workers.tvm.compile.bisect_import import MODEL_KEY, bisect_import
from tests.integration.tvm_graph.conftest import TARGET

LIMIT = 1e-4


@pytest.fixture
def network(tmp_path: Path) -> tuple[Path, Path]:
    """The files of a small network with each operator that a fault is planted in, and of its inputs."""
    rng = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("LeakyRelu", ["a"], ["b"], "slope", alpha=0.2),
        helper.make_node(
            "AveragePool", ["b"], ["c"], "pool", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
        ),
        helper.make_node("Conv", ["c", "w1"], ["d"], "second", kernel_shape=[1, 1]),
        helper.make_node("Relu", ["d"], ["e"], "relu"),
        helper.make_node(
            "Resize", ["e", "", "scales"], ["f"], "larger",
            mode="nearest", nearest_mode="floor", coordinate_transformation_mode="half_pixel",
        ),
        helper.make_node("Shape", ["f"], ["sizes"], "sizes"),
        helper.make_node("Reshape", ["f", "flat"], ["g"], "flatten"),
        helper.make_node("Softmax", ["g"], ["y"], "softmax"),
    ]  # fmt: skip
    constants = [weights("w0", 8, 3, 3, 3), weights("w1", 4, 8, 1, 1)]
    constants += [numpy_helper.from_array(np.array([1, 1, 2, 2], "float32"), "scales")]
    constants += [numpy_helper.from_array(np.array([0, -1], "int64"), "flat")]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path := tmp_path / "network.onnx")
    np.savez(inputs := tmp_path / "inputs.npz", x=rng.standard_normal((1, 3, 12, 12)).astype("float32"))
    return path, inputs


def other_attribute(kind: str, method: str, **wrong: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A fault: a converter of the importer that reads other attributes."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        converter = getattr(onnx_frontend, kind)
        real = getattr(converter, method).__func__

        def convert(cls: Any, builder: Any, inputs: Any, attrs: Any, params: Any) -> Any:
            return real(cls, builder, inputs, {**attrs, **wrong}, params)

        patch.setattr(converter, method, classmethod(convert))

    return plant


FAULTS = {
    "larger": other_attribute("Resize", "_impl_v18", coordinate_transformation_mode=b"asymmetric"),
    "slope": other_attribute("LeakyRelu", "_impl_v1", alpha=0.1),
    "pool": other_attribute("AveragePool", "_impl_v1", count_include_pad=0),
}
search = partial(bisect_import, target=TARGET.text, input_shapes={}, limit=LIMIT, error=3e-4)


@pytest.mark.parametrize("node", FAULTS)
@pytest.mark.parametrize("parts", [2, 8])
def test_a_planted_fault_is_traced_to_its_node(
    node: str, parts: int, network: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[node](monkeypatch)
    monkeypatch.setattr(module, "PARTS", parts)
    model, inputs = network
    case = tmp_path / "case.npz"
    found = search(str(model), inputs=[str(inputs)], case_npz=str(case))
    assert found is not None
    assert (found.node, found.is_import_wrong) == (node, True)
    assert found.error > LIMIT
    assert f"the import of node '{node}' ({found.operator})" in found.description
    with np.load(case) as kept:
        (kept_node,) = onnx.load_model_from_string(kept[MODEL_KEY].tobytes()).graph.node
        assert kept_node.name == node
        assert kept_node.input[0] in kept.files


def test_without_a_fault_no_node_differs(network: tuple[Path, Path], tmp_path: Path) -> None:
    model, inputs = network
    assert search(str(model), inputs=[str(inputs)], case_npz=str(tmp_path / "case.npz")) is None
    assert not (tmp_path / "case.npz").exists()


@pytest.mark.parametrize(("error", "is_explained"), [(3e-4, True), (9e-3, False)])
def test_a_model_that_magnifies_rounding_is_not_wrong(
    error: float, is_explained: bool, tmp_path: Path
) -> None:
    """A sine of many turns: a change in the last place of the input is 6e-5 of the output."""
    thousand = [numpy_helper.from_array(np.array([1000], "float32"), "thousand")]
    nodes = [
        helper.make_node("Mul", ["x", "thousand"], ["large"], "turns"),
        helper.make_node("Sin", ["large"], ["y"], "sine"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in "xy"]
    path, inputs = tmp_path / "turns.onnx", tmp_path / "inputs.npz"
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], thousand)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    np.savez(inputs, x=np.random.default_rng(0).random(64, "float32"))
    found = search(str(path), inputs=[str(inputs)], case_npz=str(tmp_path / "case.npz"), error=error)
    assert (found is not None) == is_explained
    if found is not None:
        assert not found.is_import_wrong
        assert "the model magnifies rounding" in found.description


@pytest.mark.parametrize(
    ("dtype", "nodes"),
    [
        ("int64", [("Cast", "x", "f"), ("Mul", "f", "large", "number"), ("Sin", "large", "y")]),
        ("float32", [("Add", "x", "f", "number"), ("Sub", "f", "y", "number")]),
    ],
    ids=["the last place of a weight", "float32"],
)
def test_what_onnxruntime_rounds_itself_shows_in_weights_and_in_float64(
    dtype: str, nodes: Sequence[tuple[str, ...]], tmp_path: Path
) -> None:
    """A sine of many turns of whole numbers, and what a large number swallows."""
    made = [
        helper.make_node(
            kind, [given, *more], [name], **({"to": TensorProto.FLOAT} if kind == "Cast" else {})
        )
        for kind, given, name, *more in nodes
    ]
    number = [numpy_helper.from_array(np.array([1234.5], "float32"), "number")]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info(name, each, [64]) for name, each in (("x", kind), ("y", 1))]
    path, inputs = tmp_path / "model.onnx", tmp_path / "inputs.npz"
    graph = helper.make_graph(made, "g", ends[:1], ends[1:], number)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    np.savez(
        inputs,
        x=np.random.default_rng(0).integers(0, 9, 64) if dtype == "int64" else np.full(64, 1e-3, dtype),
    )
    assert module._own_change(str(path), str(inputs)) > 1e-4


def test_float64_decides_against_onnxruntime(
    network: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node where onnxruntime in float32 is off, and in float64 confirms TVM."""
    real = module._run_in_onnxruntime

    def off(model: Any, inputs: Any) -> Any:
        outputs = real(model, inputs)
        is_alone = [node.name for node in model.graph.node] == ["second"]
        is_float32 = all(array.dtype == np.float32 for array in inputs.values())
        return [array * 1.01 for array in outputs] if is_alone and is_float32 else outputs

    monkeypatch.setattr(module, "_run_in_onnxruntime", off)
    monkeypatch.setattr(module._Search, "_differs", lambda *_: True)
    model, inputs = network
    found = search(str(model), inputs=[str(inputs)], case_npz=str(tmp_path / "case.npz"))
    assert found is not None
    assert (found.node, found.is_import_wrong) == ("second", False)
    assert "onnxruntime rounds node 'second'" in found.description


def test_sizes_between_parts_become_constants(tmp_path: Path) -> None:
    """A size that the graph computes is an input of a part, where the importer wants a constant."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["most"], "most", axis=1, keepdims=0),
        helper.make_node("Mul", ["most", "zero"], ["nothing"], "nothing"),
        helper.make_node("Add", ["nothing", "six"], ["k"], "size"),
        helper.make_node("Reshape", ["x", "k"], ["y"], "reshape"),
    ]
    constants = [
        numpy_helper.from_array(np.array([0], "int64"), "zero"),
        numpy_helper.from_array(np.array([6], "int64"), "six"),
    ]
    graph = helper.make_graph(
        nodes,
        "sizes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "sizes.onnx")
    np.savez(tmp_path / "inputs.npz", x=np.arange(6, dtype="float32")[None])
    inputs = [str(tmp_path / "inputs.npz")]
    assert search(str(tmp_path / "sizes.onnx"), inputs=inputs, case_npz=str(tmp_path / "case.npz")) is None
