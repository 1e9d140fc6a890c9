"""The graph and engine processes, asked as a worker asks them."""

from pathlib import Path
from typing import Any

import pytest

from mallorn.core.errors import InvalidModel
from workers.children.child import Child
from workers.faces.engine import Engine
from workers.tvm.accuracy import compare_models

TIMEOUT_SEC = 600.0


def test_a_model_goes_through_the_graph_process_and_both_engines(mlp: Any, tmp_path: Path) -> None:
    library, inputs, ours, theirs = (str(tmp_path / name) for name in ("m.so", "i.npz", "o.npz", "t.npz"))
    threads = {"TVM_NUM_THREADS": "2"}
    with Child("workers.tvm.graphs", env=threads, name="graphs") as graphs:
        recipe = graphs.call("recipe", TIMEOUT_SEC, name="tuned", target=mlp.target)
        compiled = graphs.call(
            "compile_model",
            TIMEOUT_SEC,
            model_path=mlp.path,
            schedules_dir=mlp.schedules,
            target=mlp.target,
            recipe=recipe,
            out_so=library,
        )
        graphs.call("make_inputs", TIMEOUT_SEC, model_path=mlp.path, inputs_npz=inputs, seed=1)
    assert compiled["found"] == compiled["of"]
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
    with Child("workers.tvm.graphs", name="graphs") as graphs, pytest.raises(InvalidModel) as caught:
        graphs.call("extract", TIMEOUT_SEC, model_path=str(torn), target=mlp.target, recipe=mlp.recipe)
    assert "cut short" in caught.value.message
    assert caught.value.hint
