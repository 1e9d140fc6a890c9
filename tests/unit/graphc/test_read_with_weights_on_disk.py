"""Heavy weights stay on the disk until TVM takes them, wherever in which file they lie."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, helper, numpy_helper

from mallorn.graphc.export.compile_network import import_graph
from mallorn.graphc.onnx import read_with_weights_on_disk
from tests.fixtures.onnx_network import onnx_network, saved
from tests.unit.graphc.networks import run

KINDS = ("float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")


def model(*given: TensorProto) -> ModelProto:
    """A model that gives back its constants."""
    tensors = {tensor.name: tensor for tensor in given}
    results = {"y": (4,)} | {
        name: np.zeros(tensor.dims, helper.tensor_dtype_to_np_dtype(tensor.data_type))
        for name, tensor in tensors.items()
    }
    return onnx_network([helper.make_node("Relu", ["x"], ["y"])], {"x": (4,)}, results, **tensors)


def elements(kind: str, count: int = read_with_weights_on_disk.HEAVY_BYTES) -> Any:
    return np.random.default_rng(0).integers(0, 2, (2, count // 2)).astype(kind)


@pytest.mark.parametrize("outside", [False, True])
def test_constants_of_every_type_are_those_of_the_file(tmp_path: Path, outside: bool) -> None:
    tensors = [numpy_helper.from_array(elements(kind), kind) for kind in KINDS]
    tensors.append(numpy_helper.from_array(elements("float32", 8), "light"))
    path = tmp_path / "m.onnx"
    onnx.save(model(*tensors), path, save_as_external_data=outside, location="d", size_threshold=0)
    lean = read_with_weights_on_disk.read(path)
    assert lean.ByteSize() < read_with_weights_on_disk.HEAVY_BYTES
    assert {t.name for t in lean.graph.initializer if t.external_data} == set(KINDS)
    found = [
        read_with_weights_on_disk.read_tensor(t) for t in sorted(lean.graph.initializer, key=lambda t: t.name)
    ]
    for one, tensor in zip(found, sorted(tensors, key=lambda t: t.name), strict=True):
        expected = numpy_helper.to_array(tensor)
        assert one.dtype == expected.dtype
        np.testing.assert_array_equal(one, expected)


def test_tvm_gets_what_the_references_point_to(tmp_path: Path) -> None:
    heavy = np.random.default_rng(1).standard_normal((300, 100)).astype("float32")
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    path = Path(saved(tmp_path / "m.onnx", [product], {"x": (2, 300)}, {"y": (2, 100)}, w=heavy))
    assert read_with_weights_on_disk.read(path).graph.initializer[0].external_data
    mod, x = import_graph(read_with_weights_on_disk.read(path), {}, None), np.ones((2, 300), "float32")
    np.testing.assert_allclose(run(mod, x), x @ heavy, rtol=1e-4)


def test_a_file_is_parsed_as_onnx_parses_it_but_for_heavy_weights(tmp_path: Path) -> None:
    light = model(numpy_helper.from_array(elements("int64", 64), "c"))
    helper.set_model_props(light, {"made": "here"})
    onnx.save(light, str(tmp_path / "m.onnx"))
    assert read_with_weights_on_disk.read(tmp_path / "m.onnx") == light


def outside(path: Path, **said: str) -> Path:
    tensor = numpy_helper.from_array(elements("float32"), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in said.items():
        tensor.external_data.add(key=key, value=value)
    (path / "short").write_bytes(bytes(100))
    onnx.save(model(tensor), str(path / "m.onnx"))
    return path / "m.onnx"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"location": "../short"}, "not in the same folder"),
        ({"location": "/etc/hosts"}, "not in the same folder"),
        ({"location": "gone"}, "not in the same folder"),
        ({}, "not in the same folder"),
        ({"location": "short"}, "shorter than"),
        ({"location": "short", "offset": "-4"}, "shorter than"),
        ({"location": "short", "offset": "nonsense"}, "shorter than"),
    ],
)
def test_data_that_is_not_where_the_model_says_is_missing(tmp_path: Path, said: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_with_weights_on_disk.read(outside(tmp_path, **said))


def test_what_is_no_model_is_no_message(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(255, 127, -1)) * 8)
    with pytest.raises(DecodeError):
        read_with_weights_on_disk.read(tmp_path / "noise")
