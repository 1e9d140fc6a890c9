"""The corpus of shipped files: its list, its samples, and the verdicts of its table."""

import hashlib
import io
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shipped.corpus import DEVELOPMENT, HELD_OUT, Archive, ShippedFile, fetch, read_list
from benchmarks.shipped.samples import make_inputs, read_png
from benchmarks.shipped.table import is_right, lines, ratio


def shipped(archive: Archive, sha256: str, **inputs: object) -> ShippedFile:
    """A file of a package of the test's own."""
    return ShippedFile("a", DEVELOPMENT, "pkg", "1", archive, "pkg/a.onnx", sha256, inputs)  # type: ignore[arg-type]


def tarball(folder: Path, content: bytes) -> Archive:
    """A package with one file, at an address of this machine."""
    path = folder / "pkg.tgz"
    with tarfile.open(path, "w:gz") as packed:
        entry = tarfile.TarInfo("pkg/a.onnx")
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))
    return Archive(path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest())


def test_the_list_has_a_hundred_files_of_fifty_packages_each_once_and_half_is_held_out() -> None:
    files = read_list()
    assert len(files) >= 100
    assert len({file.package for file in files}) >= 50
    assert len({file.sha256 for file in files}) == len({file.name for file in files}) == len(files)
    held_out = {file.package for file in files if file.half == HELD_OUT}
    assert 0.4 < len(held_out) / len({file.package for file in files}) < 0.6
    assert held_out.isdisjoint(file.package for file in files if file.half != HELD_OUT)


def test_a_file_is_fetched_once_and_only_with_its_digest(tmp_path: Path) -> None:
    archive = tarball(tmp_path, b"onnx")
    file = shipped(archive, hashlib.sha256(b"onnx").hexdigest())
    fetch([file], tmp_path / "files")
    assert file.path(tmp_path / "files").read_bytes() == b"onnx"
    (tmp_path / "pkg.tgz").unlink()
    fetch([file], tmp_path / "files")
    with pytest.raises(ValueError, match="its SHA-256 differs"):
        fetch([shipped(tarball(tmp_path, b"other"), file.sha256)], tmp_path / "anew")


@given(kinds=st.lists(st.integers(0, 4), min_size=3, max_size=3), seed=st.integers(0, 99))
def test_a_picture_is_read_whatever_its_rows_are_differences_of(kinds: list[int], seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 4, 3))
    padded = np.pad(pixels, ((1, 0), (1, 0), (0, 0)))
    left, above, corner = padded[1:, :-1], padded[:-1, 1:], padded[:-1, :-1]
    near = np.stack([left, above, corner])
    paeth = np.take_along_axis(near, np.abs(left + above - corner - near).argmin(0)[None], 0)[0]
    guesses = [0 * left, left, above, (left + above) // 2, paeth]
    rows = [bytes([kind, *((pixels - guesses[kind])[y] % 256).ravel()]) for y, kind in enumerate(kinds)]
    header = struct.pack(">IIBBBBB", 4, 3, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    data = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
    assert np.allclose(read_png(data) * 255, pixels)


@pytest.mark.parametrize("shape", [(1, 3, 6, 8), (2, 1, 6, 8), (6, 8, 3), (1, 6, 8, 1), (1, 3, 6, 1)])
def test_a_picture_fills_any_order_of_channels(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "photo.npy", np.linspace(0, 1, 4 * 4 * 3).reshape(4, 4, 3))
    file = shipped(Archive("", ""), "", x={"shape": shape, "values": "photo*2-1"})
    array = make_inputs(file, {"x": "float32"}, tmp_path)["x"]
    assert array.shape == shape
    assert array.dtype == np.float32
    assert array.min() < -0.5
    assert array.max() > 0.5 or shape[-1] == 1


def test_ids_and_fills_have_the_declared_type_and_bounds(tmp_path: Path) -> None:
    ids = {"shape": (50,), "values": "ids 4 7"}
    file = shipped(Archive("", ""), "", ids=ids, rate={"shape": (), "values": "fill 16000"})
    arrays = make_inputs(file, {"ids": "int64", "rate": "int64"}, tmp_path)
    assert set(arrays["ids"].tolist()) == {4, 5, 6}
    assert arrays["rate"].tolist() == 16000


def test_a_quantised_file_may_differ_as_much_as_onnxruntime_does() -> None:
    def of(error: float, own_error: float | None = None) -> bool | None:
        return is_right({"errors": {"provider": error}, "own_error": own_error})

    assert of(1e-4) is True
    assert of(5e-3) is False
    assert of(5e-3, 4e-3) is True
    assert is_right({"failures": {"provider": "it does not load"}}) is False
    assert is_right({"errors": {"mallorn": 0.0}}) is None
    assert is_right({}) is None


def test_a_wrong_library_has_no_time_in_the_table() -> None:
    times = {"mallorn": {"median": 1.0}, "provider": {"median": 1.1}, "onnxruntime": {"median": 2.0}}
    errors = {"mallorn": 0.0, "provider": 0.0}
    right = {"outcome": "comes in", "message": "", "errors": errors, "seconds": 1, "latency_us": times}
    wrong = right | {"errors": errors | {"provider": 0.5}}
    refused = {"outcome": "refused", "message": "a|b", "seconds": 1}
    assert (ratio(right, "onnxruntime"), ratio(wrong, "onnxruntime")) == (0.55, None)
    assert ratio(wrong, "onnxruntime", "mallorn") == 0.5
    rows = {"right": right, "wrong": wrong, "refused": refused}
    text = lines(rows, dict.fromkeys(rows, DEVELOPMENT))
    assert f"| {DEVELOPMENT} | 3 | 2 | 1 | 0.50 | 0.55 |  | 0 |" in text
    assert f"| refused | {DEVELOPMENT} | refused: a/b |  |  |  |  | 1 |" in text
