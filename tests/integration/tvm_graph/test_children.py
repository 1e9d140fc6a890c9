"""The graph and engine processes, asked as a worker asks them."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.core.errors import InvalidModel
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.measure.compare_outputs import compare_models

pytestmark = pytest.mark.usefixtures("executed_children")


def test_a_model_goes_through_the_graph_process_and_both_engines(mlp: Any, tmp_path: Path) -> None:
    library, inputs, ours, theirs = (str(tmp_path / name) for name in ("m.so", "i.npz", "o.npz", "t.npz"))
    threads = {"TVM_NUM_THREADS": "2"}
    with ModelCompiler(env=threads, name="graphs") as graphs:
        graphs.warm_up(mlp.target)
        compiled = graphs.compile_model(mlp.path, mlp.schedules, mlp.target, mlp.recipe, library, {})
        assert graphs.make_inputs(mlp.path, inputs, 1, {}, {}) == [spec.name for spec in compiled.inputs]
        found = graphs.extract(mlp.path, mlp.target, mlp.recipe, {})
    assert compiled.found == compiled.of == 3
    assert found == mlp.extracted
    assert found.graph.to_stored_json() == mlp.graph.to_stored_json()
    with Engine(env=threads, name="tvm") as engine:
        assert engine.load_library(library, mlp.target, inputs).threads == 2
        assert len(engine.time_bursts(bursts=2, number=3)) == 2
        engine.save_outputs(ours)
    with Engine(name="onnxruntime") as engine:
        engine.load_onnxruntime(mlp.path, inputs, 2)
        engine.save_outputs(theirs)
    assert compare_models(ours, theirs) < 1e-4


def test_a_refusal_arrives_with_its_hint(mlp: Any, tmp_path: Path) -> None:
    torn = tmp_path / "torn.onnx"
    torn.write_bytes(Path(mlp.path).read_bytes()[:5000])
    with ModelCompiler(name="graphs") as graphs, pytest.raises(InvalidModel) as caught:
        graphs.extract(str(torn), mlp.target, mlp.recipe, {})
    assert "cut short" in caught.value.message
    assert caught.value.hint
