"""Built libraries compute what the unscheduled program computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

from mallorn.core.errors import StorageFull
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.workers.tvm.compile.build_libraries import InvalidCandidate, build
from mallorn.workers.tvm.programs.parsed_program_cache import parse_module, parse_tvm_target
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.tvm_space.programs import matmul, softmax

HOST = '{"kind":"llvm","num-cores":2}'


def first_default(tir: str, target: str) -> tuple[str, tuple[int, ...]]:
    sketch = design_space(tir, target)[-1]
    return sketch.trace, ranked([sketch], (), assume_typical_cpu(2, 4), 1)[0].decisions


def run(library: Path, *arrays: np.ndarray[Any, Any]) -> None:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.runtime.load_module(str(library))["main"](*tensors)
    np.copyto(arrays[-1], tensors[-1].numpy())


@pytest.mark.parametrize("tir", [matmul(), softmax()], ids=["matmul", "softmax"])
def test_a_candidate_computes_what_the_reference_computes(tir: str, tmp_path: Path) -> None:
    shapes = [(32, 48), (48, 64), (64,), (32, 64)] if tir == matmul() else [(16, 64), (16, 64)]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    expected = [array.copy() for array in inputs]
    trace, decisions = first_default(tir, HOST)
    library = build(tir, HOST, trace, decisions, str(tmp_path / "candidate.so"))
    unscheduled = tvm.tirx.build(parse_module(tir), target=parse_tvm_target(HOST))
    unscheduled.export_library(str(tmp_path / "reference.so"))
    run(tmp_path / "candidate.so", *inputs)
    run(tmp_path / "reference.so", *expected)
    np.testing.assert_allclose(inputs[-1], expected[-1], rtol=1e-4, atol=1e-5)
    assert library.bytes == (tmp_path / "candidate.so").stat().st_size
    assert library.build_ms > 0


def test_nothing_but_the_library_is_left_behind(tmp_path: Path) -> None:
    trace, decisions = first_default(softmax(), HOST)
    build(softmax(), HOST, trace, decisions, str(tmp_path / "candidate.so"))
    assert [path.name for path in tmp_path.iterdir()] == ["candidate.so"]


def test_an_invalid_candidate_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.workers.tvm.compile.build_libraries.rebuild", lambda *_: None)
    trace, decisions = first_default(matmul(), HOST)
    with pytest.raises(InvalidCandidate):
        build(matmul(), HOST, trace, decisions, str(tmp_path / "candidate.so"))


def test_a_library_that_cannot_be_written_is_blamed_on_the_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, decisions = first_default(softmax(), HOST)
    (tmp_path / "candidate.o").symlink_to(tmp_path / "nowhere" / "candidate.o")  # where TVM writes its object
    monkeypatch.setattr("mallorn.workers.host.linker.LEAST_FREE_BYTES", 1 << 60)
    with pytest.raises(StorageFull, match="is full"):
        build(softmax(), HOST, trace, decisions, str(tmp_path / "candidate.so"))
