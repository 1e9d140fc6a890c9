"""The archive of the graph compiler that an export carries."""

import ast
import sys
from importlib.resources import files
from pathlib import Path
from zipfile import ZipFile

import pytest

from mallorn.graphc.export.zip_graphc import write_archive

ROOT = Path(str(files("mallorn.graphc")))
GRAPHC = "mallorn.graphc"
SOURCES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_it_imports_nothing_of_ours(source: Path) -> None:
    tree = ast.parse(source.read_text())
    named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert [name for name in named if f"{name}.".startswith("mallorn.") and not name.startswith(GRAPHC)] == []
    roots = {name.partition(".")[0] for name in named}
    # onnx brings ml_dtypes and protobuf.
    known = {"mallorn", "tvm", "tvm_ffi", "onnx", "numpy", "ml_dtypes", "google", "onnxruntime"}
    assert roots - set(sys.stdlib_module_names) <= known


def test_equal_sources_make_equal_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert [path.read_bytes() for path in write_archive(first)] == [
        path.read_bytes() for path in write_archive(second)
    ]


def test_it_holds_every_source_and_the_threads(tmp_path: Path) -> None:
    archive, script = write_archive(tmp_path)
    with ZipFile(archive) as opened:
        names = set(opened.namelist())
    assert {f"mallorn/graphc/{source.relative_to(ROOT)}" for source in SOURCES} <= names
    assert "mallorn/graphc/export/thread_pool.c" in names
    assert not [name for name in names if "__pycache__" in name]
    assert script.read_text().startswith('"""Compile an ONNX model')
