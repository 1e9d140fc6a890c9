"""Weights in a library: as they are, out of the code's way, and as TVM packs them for CPUs unknown here."""

import platform
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.export.embed_weights import MACHINES, weight_embedding_options, write_data_object
from mallorn.workers.host.linker import link_shared

WEIGHTS = np.random.default_rng(0).random((257, 129), "float32")
HERE = platform.machine()
IS_KNOWN = pytest.mark.skipif(HERE not in MACHINES, reason="TVM packs the weights for such a CPU")


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


@IS_KNOWN
@pytest.mark.parametrize("folder", ["plain", 'with "quotes" and spaces'])
def test_a_library_holds_its_weights_as_they_are(executable: Any, tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir()
    library = place / "model.so"
    executable.export_library(
        str(library), fcompile=link_shared, workspace_dir=str(place), **weight_embedding_options(HERE)
    )
    assert np.array_equal(computed(library), WEIGHTS)
    assert WEIGHTS.tobytes() in library.read_bytes()


@pytest.mark.skipif(HERE != "x86_64", reason="others have no sections of large data")
def test_they_lie_behind_the_code_which_need_not_reach_across(executable: Any, tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    executable.export_library(str(library), fcompile=link_shared, **weight_embedding_options(HERE))
    assert b".lrodata\0" in library.read_bytes()


def test_for_a_cpu_unknown_here_tvm_goes_its_own_way(executable: Any, tmp_path: Path) -> None:
    assert weight_embedding_options("riscv64") == {}
    executable.export_library(str(tmp_path / "model.so"), fcompile=link_shared)
    assert np.array_equal(computed(tmp_path / "model.so"), WEIGHTS)


@pytest.mark.parametrize(("architecture", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_an_object_file_is_written_for_a_cpu_that_is_not_here(
    tmp_path: Path, architecture: str, number: int
) -> None:
    path = tmp_path / "weights.o"
    write_data_object(path, MACHINES[architecture], "weights", memoryview(WEIGHTS).cast("B"))
    content = path.read_bytes()
    assert content[:7] == b"\x7fELF\x02\x01\x01"
    kind, machine = struct.unpack_from("<HH", content, 16)
    assert (kind, machine) == (1, number)
    (table,) = struct.unpack_from("<Q", content, 40)
    start, size = struct.unpack_from("<QQ", content, table + 64 + 24)  # of the section behind the empty one
    assert start % 64 == 0
    assert content[start : start + size] == WEIGHTS.tobytes()
