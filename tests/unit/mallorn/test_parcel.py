"""What is sent of a model: one file as it is, several as one stream that unpacks to the same files."""

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from mallorn import Client
from mallorn.client.model_upload import ModelUpload
from mallorn.client.onnx_export import as_onnx
from mallorn.core.errors import InvalidModel
from mallorn.core.values.dataset import SAMPLES
from mallorn.workers.process.unpack_model import unpack
from tests.fixtures.coordinator import Coordinator
from tests.fixtures.onnx_network import onnx_network


def write(path: Path, location: str = "weights/all.bin") -> Path:
    """A model with its weights in a file beside it."""
    path.parent.mkdir(exist_ok=True)
    (path.parent / location).parent.mkdir(exist_ok=True)
    weight = np.arange(1000, dtype="float32").reshape(8, 125)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = onnx_network([product], {"x": (4, 8)}, {"y": (4, 125)}, w=weight)
    onnx.save(model, str(path), save_as_external_data=True, location=location, size_threshold=0)
    return path


def test_a_file_without_others_is_sent_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx")
    whole = onnx.load(str(path))
    onnx.save(whole, str(tmp_path / "whole.onnx"), save_as_external_data=False)
    parcel = ModelUpload.of(tmp_path / "whole.onnx")
    assert b"".join(parcel.chunks()) == (tmp_path / "whole.onnx").read_bytes()
    assert parcel.size_bytes == (tmp_path / "whole.onnx").stat().st_size


def test_weights_beside_it_come_along_and_unpack_to_what_they_were(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx")
    parcel = ModelUpload.of(path)
    sent = b"".join(parcel.chunks())
    assert len(sent) == parcel.size_bytes
    (tmp_path / "there").mkdir()
    model = unpack(io.BytesIO(sent), tmp_path / "there")
    assert model.read_bytes() == path.read_bytes()
    assert (tmp_path / "there/weights/all.bin").read_bytes() == (tmp_path / "weights/all.bin").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        assert archive.getnames() == ["model.onnx", "weights/all.bin"]


def test_inputs_for_checks_come_along(tmp_path: Path) -> None:
    onnx.save(onnx.load(str(write(tmp_path / "net.onnx"))), str(tmp_path / "whole.onnx"))
    (samples := tmp_path / "mine.npz").write_bytes(b"arrays")
    parcel = ModelUpload.of(tmp_path / "whole.onnx", samples)
    sent = b"".join(parcel.chunks())
    assert len(sent) == parcel.size_bytes
    (tmp_path / "there").mkdir()
    model = unpack(io.BytesIO(sent), tmp_path / "there")
    assert model.with_name(SAMPLES).read_bytes() == b"arrays"
    with pytest.raises(InvalidModel, match="there is no file"):
        ModelUpload.of(tmp_path / "whole.onnx", tmp_path / "none.npz")


def test_the_same_contents_are_the_same_bytes_whenever_and_by_whomever_they_were_written(
    tmp_path: Path,
) -> None:
    one, other = write(tmp_path / "a" / "net.onnx"), write(tmp_path / "b" / "other.onnx")
    os.utime(other, (0, 0))
    other.chmod(0o600)
    assert list(ModelUpload.of(one).chunks()) == list(ModelUpload.of(other).chunks())


def test_the_coordinator_stores_it_under_its_hash(coordinator: Coordinator, tmp_path: Path) -> None:
    path, seen = write(tmp_path / "net.onnx"), []
    with Client(coordinator.url) as client:
        model = client.upload(path, lambda sent, total: seen.append((sent, total)))
        assert client.upload(path.parent).id == model.id
    assert model.size_bytes == ModelUpload.of(path).size_bytes
    assert seen[-1] == (model.size_bytes, model.size_bytes)


def test_a_folder_stands_for_the_only_model_in_it(tmp_path: Path) -> None:
    path = write(tmp_path / "net.onnx")
    with as_onnx(tmp_path) as file:
        assert file == path
    write(tmp_path / "another.onnx")
    with pytest.raises(InvalidModel, match="2 ONNX files") as caught, as_onnx(tmp_path):
        pass
    assert "another.onnx" in caught.value.hint
