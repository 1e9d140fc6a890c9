"""Weights in a library: as they are, out of the code's way, and as TVM packs them where no assembler is."""

import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.export import embed_weights
from mallorn.workers.tvm.linker import link_shared

WEIGHTS = np.random.default_rng(0).random((257, 129), "float32")
HAS_ASSEMBLER = pytest.mark.skipif(not embed_weights.weight_embedding_options(), reason="needs an assembler")


@pytest.fixture(scope="module")
def executable() -> Any:
    """A model that adds its weights."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(WEIGHTS.shape, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, relax.const(WEIGHTS))))
    return tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm", "num-cores": 1}))


def computed(library: Path) -> Any:
    main = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())["main"]
    return main(tvm.runtime.tensor(np.zeros_like(WEIGHTS))).numpy()


@HAS_ASSEMBLER
@pytest.mark.parametrize("folder", ["plain", 'with "quotes" and spaces'])
def test_a_library_holds_its_weights_as_they_are(executable: Any, tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    library = place / "model.so"
    executable.export_library(
        str(library),
        fcompile=link_shared,
        workspace_dir=str(place),
        **embed_weights.weight_embedding_options(),
    )
    assert np.array_equal(computed(library), WEIGHTS)
    assert WEIGHTS.tobytes() in library.read_bytes()
    assert not (place / "imports.bin").exists()


@HAS_ASSEMBLER
@pytest.mark.skipif(platform.machine() != "x86_64", reason="others have no sections of large data")
def test_they_lie_behind_the_code_which_need_not_reach_across(executable: Any, tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    executable.export_library(str(library), fcompile=link_shared, **embed_weights.weight_embedding_options())
    assert b".lrodata\0" in library.read_bytes()


def test_without_an_assembler_tvm_goes_its_own_way(
    executable: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as nothing:
        nothing.setattr(shutil, "which", lambda _name: None)
        told = embed_weights.weight_embedding_options()
    assert told == {}
    executable.export_library(str(tmp_path / "model.so"), fcompile=link_shared, **told)
    assert np.array_equal(computed(tmp_path / "model.so"), WEIGHTS)
