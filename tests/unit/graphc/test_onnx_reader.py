"""Bad uploads are told apart before TVM sees them."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from mallorn.core.errors import InvalidModel
from mallorn.graphc.export.compile_network import patch_importer_and_list_operators, simplify_onnx_model
from mallorn.workers.tvm.network.check_onnx_model import read_model, refuse_unknown_operators

Build = Callable[..., ModelProto]


def read_bytes(data: bytes) -> ModelProto:
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(data)
        return read_model(path)


def refusal(data: bytes) -> InvalidModel:
    with pytest.raises(InvalidModel) as caught:
        read_bytes(data)
    assert caught.value.hint
    return caught.value


def external(name: str = "far") -> TensorProto:
    tensor = numpy_helper.from_array(np.ones((8, 8), "float32"), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    return tensor


def branch(*nodes: object) -> AttributeProto:
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    return helper.make_attribute("then_branch", helper.make_graph(list(nodes), "b", [], [result]))


def test_a_good_model_is_read(build_model: Build) -> None:
    assert read_bytes(build_model().SerializeToString()) == build_model()


def test_zero_bytes() -> None:
    assert "empty" in refusal(b"").message


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_truncated(build_model: Build, keep: float) -> None:
    data = build_model().SerializeToString()
    assert "cut short" in refusal(data[: int(len(data) * keep)]).message


@pytest.mark.parametrize(
    ("data", "name", "hint"),
    [
        (b"PK\x03\x04model/data.pkl", "PyTorch archive", "torch.onnx.export"),
        (b"PK\x03\x04readme.txt", "zip", "unpack"),
        (b"\x80\x02}q\x00", "pickle", "torch.onnx.export"),
        (b"\x1c\x00\x00\x00TFL3\x00\x00", "TensorFlow Lite", "mv MODEL MODEL.tflite"),
        (b"\x89HDF\r\n\x1a\n", "HDF5", "MODEL.keras"),
        (b'{"root_index": 1, "nodes": []}', "JSON", "mv MODEL MODEL.json"),
        (b"# from tvm.script import ir as I\n@I.ir_module\nclass Module: pass", "TVMScript", "code"),
        (b"\x7fELF\x02\x01", "compiled library", "ONNX"),
    ],
)
def test_other_formats_are_named(data: bytes, name: str, hint: str) -> None:
    error = refusal(data)
    assert name in error.message
    assert hint in error.hint


def test_external_data_is_refused(build_model: Build) -> None:
    model = build_model()
    model.graph.initializer.append(external())
    assert (
        "'far' keeps its data in the file '/etc/passwd', which is not in the same folder"
        in refusal(model.SerializeToString()).message
    )


def test_external_data_is_found_in_an_attribute_of_a_nested_graph(build_model: Build) -> None:
    inner = helper.make_node("Constant", [], ["r"], value=external("hidden"))
    choice = helper.make_node("If", ["c"], ["y"])
    choice.attribute.append(branch(inner))
    assert "'hidden'" in refusal(build_model([choice]).SerializeToString()).message


def unknown(model: ModelProto) -> InvalidModel:
    with pytest.raises(InvalidModel) as caught:
        refuse_unknown_operators(simplify_onnx_model(model, {}), patch_importer_and_list_operators())
    assert "docs/models.md" in caught.value.hint
    return caught.value


def test_unknown_operators_are_named(build_model: Build) -> None:
    nodes = [helper.make_node("Frobnicate", ["x"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
    assert unknown(build_model(nodes)).message.endswith("operators: Frobnicate")


def test_unknown_operators_are_named_inside_branches(build_model: Build) -> None:
    choice = helper.make_node("If", ["c"], ["y"])
    choice.attribute.append(branch(helper.make_node("Quux", ["x"], ["r"])))
    assert "Quux" in unknown(build_model([choice])).message


def test_unknown_operators_that_nothing_needs_are_no_hindrance(build_model: Build) -> None:
    nodes = [helper.make_node("Frobnicate", ["x"], ["z"]), helper.make_node("Relu", ["x"], ["y"])]
    refuse_unknown_operators(simplify_onnx_model(build_model(nodes), {}), patch_importer_and_list_operators())


def test_operators_of_an_unknown_domain_are_named(build_model: Build) -> None:
    node = helper.make_node("Relu", ["x"], ["y"], domain="acme")
    assert "acme.Relu" in refusal(build_model([node]).SerializeToString()).message


def test_an_invalid_graph_is_told_by_onnx_itself(build_model: Build) -> None:
    node = helper.make_node("MatMul", ["x", "nowhere"], ["y"])
    assert "not a valid ONNX model" in refusal(build_model([node]).SerializeToString()).message


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damage_anywhere_is_refused_or_harmless(build_model: Build, data: st.DataObject) -> None:
    """Whatever byte is wrong, nothing but InvalidModel comes out."""
    damaged = bytearray(build_model().SerializeToString())
    places = st.integers(0, len(damaged) - 1)
    for place in data.draw(st.lists(places, min_size=1, max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(InvalidModel):
        read_bytes(bytes(damaged[: data.draw(st.integers(1, len(damaged)))]))


def test_names_that_are_no_text_are_refused(build_model: Build) -> None:
    node = helper.make_node("Spoil", ["x"], ["y"])
    spoilt = build_model([node]).SerializeToString().replace(b"Spoil", b"\xff\xfe\xfd\xfc\xfb")
    assert "not an ONNX model" in refusal(spoilt).message
