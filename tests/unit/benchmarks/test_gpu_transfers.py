"""Transfers of the GPU benchmark: what is cut here is whole there, in whatever order it comes."""

import json
import lzma
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks.gpu import archive
from benchmarks.gpu.archive import SEARCHED, _cut
from benchmarks.gpu.packages import ROOT
from benchmarks.gpu.unpack import BASE, COMPILER, MANIFEST, PIECE, Incomplete, has_compiler, unpack

LIBRARY = bytes(range(256)) * 400


@pytest.fixture
def send(tmp_path: Path) -> Path:
    """Return a folder of transfers: one with the product, and three with pieces of the compiler."""
    first = tmp_path / "send" / "1"
    first.mkdir(parents=True)
    source = tmp_path / "module.py"
    source.write_text("VALUE = 1\n")
    with tarfile.open(first / BASE, "w:xz") as archive:
        archive.add(source, "tree/module.py")
        archive.add(source, str("site" / COMPILER.parent / "version.py"))
    packed = tmp_path / "compiler.xz"
    packed.write_bytes(lzma.compress(LIBRARY))
    limit = -(-packed.stat().st_size // 3)
    pieces = [first / BASE, *_cut(packed, PIECE, tmp_path / "send", limit)]
    assert all(piece.stat().st_size <= limit for piece in pieces[1:])
    digests = {piece.name: sha256(piece.read_bytes()).hexdigest() for piece in pieces}
    (first / MANIFEST).write_text(json.dumps(digests))
    return tmp_path / "send"


def test_the_compiler_is_whole_when_all_its_pieces_came(send: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    unpack([send / "1"], home)
    assert (home / "tree" / "module.py").read_text() == "VALUE = 1\n"
    for number in ("4", "2"):
        unpack([send / number], home)
        assert not has_compiler(home)
    unpack([send / "3"], home)
    assert (home / "site" / COMPILER).read_bytes() == LIBRARY


def test_a_transfer_that_comes_again_changes_nothing(send: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    unpack([send / "1"], home)
    (home / "tree" / "module.py").write_text("what a part wrote meanwhile\n")
    unpack([send / "1"], home)
    assert (home / "tree" / "module.py").read_text() == "what a part wrote meanwhile\n"


def test_without_the_first_transfer_nothing_runs(send: Path, tmp_path: Path) -> None:
    with pytest.raises(Incomplete, match="no transfer 1 yet"):
        unpack([send / "2"], tmp_path / "home")


@pytest.mark.parametrize("number", ["1", "3"])
def test_a_damaged_file_is_refused(send: Path, tmp_path: Path, number: str) -> None:
    file = next(file for file in (send / number).iterdir() if file.name != MANIFEST)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(Incomplete, match="send its transfer again"):
        unpack([send / each for each in ("1", "2", "3", "4")], tmp_path / "home")
    assert not has_compiler(tmp_path / "home")


def test_what_only_later_parts_import_is_not_in_the_first_transfer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, kernels = tmp_path / "site", tmp_path / "kernels"
    for file in (
        *(site / name / "__init__.py" for name in ("click", "onnxruntime", "xgboost")),
        *(kernels / "batch.json", tmp_path / SEARCHED / "order.json"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(archive, "_tracked", lambda *_: [])
    archive.write_base(tmp_path / BASE, site, kernels, 0)
    later = archive.write_later_parts(tmp_path, site, 0)
    with tarfile.open(tmp_path / BASE) as first, tarfile.open(later) as last:
        assert {name for name in first.getnames() if "." in name} == {
            "site/click/__init__.py",
            "kernels/batch.json",
        }
        assert {name for name in last.getnames() if "." in name} == {
            "site/onnxruntime/__init__.py",
            "site/xgboost/__init__.py",
            "searched/order.json",
        }


def test_data_of_a_new_database_is_sent_with_what_later_parts_need(tmp_path: Path) -> None:
    nothing = tmp_path / "site", tmp_path / "kernels"
    archive.write_base(tmp_path / BASE, *nothing, 0)
    later = archive.write_later_parts(tmp_path, nothing[0], 0)
    with tarfile.open(tmp_path / BASE) as first, tarfile.open(later) as last:
        assert [name for name in first.getnames() if name.startswith("tree/db/bundled/data")] == []
        assert "tree/db/bundled/data/bases.json" in last.getnames()


def test_the_first_transfer_has_every_room_of_the_product(tmp_path: Path) -> None:
    archive.write_base(tmp_path / BASE, tmp_path / "site", tmp_path / "kernels", 0)
    with tarfile.open(tmp_path / BASE) as first:
        sent = set(first.getnames())
    rooms = [link.name for link in (ROOT / "mallorn").iterdir() if link.is_symlink()]
    assert "kinds" in rooms
    assert {f"tree/{room}/__init__.py" for room in rooms} - sent == set()
