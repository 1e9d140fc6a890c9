"""A model that is compiled again compiles what is new in it, and computes the same."""

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.workers.tvm.compile import compile_model as compiling


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that a compiler was run for; nothing is known at first."""
    build, seen = tvm.tirx.build, list[str]()

    def counted(mod, *given, **named):
        seen.extend(var.name_hint for var in mod.get_global_vars())
        return build(mod, *given, **named)

    monkeypatch.setattr(compiling, "_cached", {})
    monkeypatch.setattr(compiling, "_latest_networks", {})
    monkeypatch.setattr(tvm.tirx, "build", counted)
    return seen


def library(mlp, tmp_path: Path, name: str, schedules: str | None = None) -> str:
    path = str(tmp_path / f"{name}.so")
    compiling.compile_model(mlp.path, schedules, mlp.target, mlp.recipe, path, {})
    return path


def answers(path: str, model: str) -> list[np.ndarray]:
    import onnx

    from mallorn.graphc.export.compile_network import random_inputs

    arrays = random_inputs(onnx.load(model), {}, {}, 0)
    machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
    result = machine["main"](*map(tvm.runtime.tensor, arrays.values()))
    return [each.numpy() for each in ([result] if hasattr(result, "numpy") else result)]


def test_the_second_time_nothing_is_compiled(mlp, tmp_path, compiled):
    first = library(mlp, tmp_path, "first")
    assert compiled
    del compiled[:]
    again = library(mlp, tmp_path, "again")
    assert compiled == []
    for one, other in zip(answers(first, mlp.path), answers(again, mlp.path), strict=True):
        assert np.array_equal(one, other)


def test_with_schedules_only_their_kernels_are_compiled(mlp, tmp_path, compiled):
    library(mlp, tmp_path, "default")
    known = len(compiled)
    library(mlp, tmp_path, "scheduled", str(mlp.schedules))
    assert 0 < len(compiled) - known <= known


def test_what_is_kept_has_a_limit(mlp, tmp_path, compiled, monkeypatch):
    monkeypatch.setattr(compiling, "MOST_BYTES", 1)
    library(mlp, tmp_path, "first")
    assert len(compiling._cached) == 1


def test_another_model_is_read_anew(mlp, tmp_path, compiled):
    library(mlp, tmp_path, "first")
    (kept,) = compiling._latest_networks
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(Path(mlp.path).read_bytes())
    compiling.compile_model(str(copy), None, mlp.target, mlp.recipe, str(tmp_path / "copy.so"), {})
    assert kept not in compiling._latest_networks


def test_a_model_that_is_too_large_to_keep_is_not_read_ahead(mlp, compiled, monkeypatch):
    monkeypatch.setattr(compiling, "is_large", lambda _bytes: True)
    monkeypatch.setattr(compiling, "import_networks", lambda *_: pytest.fail("it would be read twice"))
    compiling.import_ahead(mlp.path, mlp.target, mlp.recipe, {}, None)


def test_what_is_read_ahead_is_there_when_it_is_compiled(mlp, tmp_path, compiled, monkeypatch):
    compiling.import_ahead(mlp.path, mlp.target, mlp.recipe, {}, None)
    monkeypatch.setattr(compiling, "load_network", lambda *_: pytest.fail("it was read twice"))
    library(mlp, tmp_path, "first")
    assert compiled
