"""What is given instead of a good ONNX file: a sentence that says what it is, and a step that works.

What can be told by a look at the file is refused before a service is started, the rest by the import.
"""

import errno
import gzip
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from typer.testing import CliRunner

from mallorn.cli.main import app
from mallorn.client.onnx_export import as_onnx
from mallorn.core.errors import InvalidModel, MallornError
from mallorn.core.values.graph_report import TensorSpec
from mallorn.workers.tvm.network.import_onnx_to_relax import load_network
from tests.fixtures.onnx_network import onnx_network

Write = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """How to make the file, what is said of it and what the next step has in it."""

    write: Write
    said: str
    hint: str
    name: str = "model.onnx"


X, MATMUL = (4, 8), helper.make_node("MatMul", ["x", "w"], ["y"])


def model(*nodes: onnx.NodeProto, x: Any = X, outputs: Any = None, **versions: int) -> ModelProto:
    results = {"y": X} if outputs is None else outputs
    weight = np.arange(64, dtype="float32").reshape(8, 8)
    return onnx_network(nodes or [MATMUL], {"x": x}, results, w=weight, **{"ir_version": 8} | versions)


def whole(*nodes: onnx.NodeProto, **changes: Any) -> Write:
    return lambda path: path.write_bytes(model(*nodes, **changes).SerializeToString())


def content(data: bytes) -> Write:
    return lambda path: path.write_bytes(data)


def archive(*members: str) -> Write:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for member in members:
                file.writestr(member, "content")

    return write


def with_weights_outside(path: Path) -> None:
    onnx.save(model(), str(path), save_as_external_data=True, location="model.data", size_threshold=0)


def weights_lost(path: Path) -> None:
    with_weights_outside(path)
    (path.parent / "model.data").unlink()


def safetensors(path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


def folder_with_two_models(path: Path) -> None:
    path.mkdir()
    for name in ("encoder.onnx", "decoder.onnx"):
        (path / name).write_bytes(model().SerializeToString())


def locked(path: Path) -> None:
    path.write_bytes(model().SerializeToString())
    path.chmod(0)


FIRST_LOOK = {
    "missing": Case(lambda path: None, "there is no file", "path of an .onnx file"),
    "empty": Case(content(b""), "is empty", "path of an .onnx file"),
    "text": Case(content(b"Dear Sir,\nplease find enclosed"), "is plain text", "path of an .onnx file"),
    "web page": Case(content(b"<!DOCTYPE html>\n<html>"), "is a web page", "download the file itself"),
    "git lfs": Case(content(b"version https://git-lfs.github.com/spec/v1\n"), "Git LFS", "git lfs pull"),
    "json": Case(content(b'{"nodes": []}'), "is JSON", "converts a file with that ending"),
    "jpeg": Case(content(b"\xff\xd8\xff\xe0\x00\x10JFIF"), "is a picture (JPEG)", "path of an .onnx file"),
    "gzip": Case(lambda path: path.write_bytes(gzip.compress(b"x")), "is a gzip archive", "gunzip"),
    "zip": Case(archive("readme.txt"), "is a zip archive", "unpack it"),
    "pytorch": Case(archive("net/data.pkl"), "is a PyTorch archive (.pt)", "torch.onnx.export"),
    "old pytorch": Case(content(b"\x80\x02}q\x00."), "is a pickle", "torch.onnx.export"),
    "safetensors": Case(safetensors, "weights without their network (safetensors)", "torch.onnx.export"),
    "keras": Case(archive("config.json", "model.weights.h5"), "is a Keras archive", ".keras"),
    "hdf5": Case(
        content(b"\x89HDF\r\n\x1a\n" + bytes(64)), "is an HDF5 file (Keras)", "if you trust its author"
    ),
    "tflite": Case(content(b"\x1c\0\0\0TFL3" + bytes(64)), "TensorFlow Lite", "model.onnx.tflite"),
    "noise": Case(content(bytes(range(255, 127, -1)) * 8), "is not an ONNX model", ".onnx file"),
    "cut short": Case(
        lambda path: path.write_bytes(model().SerializeToString()[:200]),
        "cut short",
        "export the model again",
    ),
    "directory": Case(folder_with_two_models, "is a directory with 2 ONNX files", "decoder.onnx, "),
    "empty directory": Case(Path.mkdir, "is a directory with no ONNX files", "path of an .onnx file"),
    "weights lost": Case(
        weights_lost, "'model.data', which is not in the same folder", "copy model.data there"
    ),
    "unreadable": Case(locked, "cannot read", "ls -l"),
}
IMPORT = {
    "newer IR": Case(whole(ir_version=99), "ONNX IR version 99", "opset_version=17"),
    "newer opset": Case(whole(opset=99), "ONNX opset 99", "opset_version=17"),
    "custom operator": Case(
        whole(helper.make_node("Relu", ["x"], ["y"], domain="acme")), "acme.Relu", "standard ONNX"
    ),
    "free dimensions": Case(whole(x=("batch", 8)), "free dimensions: x [batch, 8]", "--input-shape x:1,8"),
    "no outputs": Case(whole(outputs={}), "has no outputs", "as outputs"),
    "text input": Case(
        whole(helper.make_node("Identity", ["x"], ["y"]), x=np.zeros(X, "str")),
        "input 'x' takes text",
        "text processing",
    ),
    "unfit shapes": Case(whole(x=(4, 5)), "TVM cannot import", "onnxsim"),
    "invalid": Case(
        whole(helper.make_node("MatMul", ["x", "gone"], ["y"])), "not a valid ONNX model", "check-model"
    ),
}


def refused(look: Callable[[], object], case: Case) -> None:
    with pytest.raises(MallornError) as caught:
        look()
    assert case.said in caught.value.message
    assert case.hint in caught.value.hint
    assert "\n" not in caught.value.message


def refuse_to_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(file: Path, *args: Any, **options: Any) -> Any:
        if file == path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(file, *args, **options)

    monkeypatch.setattr(Path, "open", refuse)


def first_look(path: Path) -> None:
    with as_onnx(path):
        pass


@pytest.mark.parametrize("name", FIRST_LOOK)
def test_a_first_look_tells_what_it_is_and_no_service_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, path = FIRST_LOOK[name], tmp_path / "model.onnx"
    case.write(path)
    if name == "unreadable" and os.access(path, os.R_OK):
        refuse_to_open(path, monkeypatch)  # whoever runs the tests may read everything
    refused(lambda: first_look(path), case)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["tune", str(path), "--data", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert case.said in result.stderr
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "model-tuned").exists()


@pytest.mark.parametrize("name", IMPORT)
def test_the_import_tells_the_rest(name: str, tmp_path: Path) -> None:
    case, path = IMPORT[name], tmp_path / "model.onnx"
    case.write(path)
    first_look(path)
    refused(lambda: load_network(path), case)


def test_a_wrong_input_shape_is_told_with_what_the_model_declares(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(x=("batch", "width")).SerializeToString())
    for shape in ([4, 5], [4, 5, 6]):
        with pytest.raises(InvalidModel) as caught:
            load_network(path, {"x": shape})
        assert "x [batch, width]" in caught.value.hint


@pytest.mark.parametrize(
    "output", [onnx.ValueInfoProto(name="y"), helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
)
def test_outputs_without_type_or_shape_are_inferred(output: onnx.ValueInfoProto, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model(outputs={"y": output}).SerializeToString())
    assert load_network(path).outputs == [TensorSpec(name="y", dtype="float32", shape=[4, 8])]


def test_weights_in_another_file_are_read_where_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with_weights_outside(path)
    with as_onnx(path) as file:
        assert file == path
        assert load_network(file).operators == {"MatMul": 1}


def test_weights_that_point_out_of_their_directory_are_not_fetched(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(256))
    inner = tmp_path / "inner"
    inner.mkdir()
    with_weights_outside(inner / "model.onnx")
    bad = onnx.load(str(inner / "model.onnx"), load_external_data=False)
    bad.graph.initializer[0].external_data[0].value = "../secret"
    (inner / "model.onnx").write_bytes(bad.SerializeToString())
    for look in (first_look, load_network):
        with pytest.raises(InvalidModel, match="not in the same folder"):
            look(inner / "model.onnx")
