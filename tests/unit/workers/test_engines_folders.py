"""Engines run what others made: each kind writes a folder of its own, and reads the rest of the stage's."""

from dataclasses import replace
from pathlib import Path

from mallorn.core.targets import parse_target
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.sandbox.landlock import READ
from mallorn.workers.sandbox.sandbox import SandboxSpec
from mallorn.workers.tvm.network.graph_recipes import TUNED
from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME, WholeModel


def whole(folder: Path, room: Path | None) -> WholeModel:
    return WholeModel(
        path=folder / "m.onnx",
        target=parse_target({"kind": "llvm", "num-cores": 2}),
        recipe=TUNED,
        input_shapes={},
        input_ranges={},
        graphs=ModelCompiler(),
        folder=folder,
        threads=2,
        room=room,
    )


def walls(model: WholeModel, name: str) -> SandboxSpec:
    engine = model.engine(name)
    assert isinstance(engine, Engine)
    return engine.sandbox_spec


def test_an_engine_writes_a_folder_of_its_kind_alone(tmp_path: Path) -> None:
    model = whole(tmp_path / "graphs", tmp_path)
    for name, kind in (("tuned", "tvm"), ("untuned", "tvm"), (ONNXRUNTIME, ONNXRUNTIME)):
        own = f"{kind}-engines"
        assert walls(model, name) == SandboxSpec(tmp_path / own, others=((str(tmp_path), READ),))
        assert model.outputs_file(name) == tmp_path / own / f"{name}-outputs.npz"


def test_a_users_own_files_may_lie_anywhere(tmp_path: Path) -> None:
    model = whole(tmp_path, None)
    assert walls(model, "tuned") == SandboxSpec(None)
    assert model.outputs_file("tuned") == tmp_path / "tuned-outputs.npz"


def test_points_of_a_range_have_inputs_of_their_own(tmp_path: Path) -> None:
    made: list[str] = []

    class Graphs(ModelCompiler):
        def make_inputs(self, _model: str, inputs: str, *_given: object) -> list[str]:  # type: ignore[override]
            made.append(inputs)
            return ["x"]

    model = replace(whole(tmp_path, None), graphs=Graphs())
    points = [replace(model, input_shapes={"x": [size]}) for size in (1, 2)]
    assert [str(point.inputs_file) for point in (*points, *points)] == made * 2
    assert len(set(made)) == 2
