"""The whole model with its schedules: checked, and timed beside the untuned build and onnxruntime."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import Unavailable
from workers.children.child import Child
from workers.engine_race import race
from workers.finish.stand import COMPILE_TIMEOUT_SEC, Built, Stand, device_is_here
from workers.stage import Stage

RUN_TIMEOUT_SEC: Final = 600.0
ENGINES: Final = ("untuned", "tuned", "onnxruntime")


def judge(stand: Stand, built: Built) -> dict[str, Any]:
    """The model's part of the report; says why where the model cannot run on this worker's host."""
    claimed = stand.claimed
    if not device_is_here(claimed):
        return built.found | {"not_timed": "the device is on another host than this worker"}
    files = _Files(stand, built)
    with ExitStack() as stack:
        engines = _start(claimed, stack)
        _compile_untuned(stand, files)
        return built.found | _compare(stand.graphs, _load(engines, claimed, files), files)


@dataclass(frozen=True, slots=True)
class _Files:
    """What the engines read and write."""

    stand: Stand
    built: Built

    @property
    def untuned(self) -> Path:
        return self.stand.folder / "untuned.so"

    def outputs(self, engine: str) -> Path:
        return self.stand.folder / f"{engine}-outputs.npz"


def _compile_untuned(stand: Stand, files: _Files) -> None:
    stand.graphs.call(
        "compile_default",
        COMPILE_TIMEOUT_SEC,
        model_path=str(stand.model),
        target=stand.claimed.target.text,
        input_shapes=stand.claimed.options.input_shapes,
        out_so=str(files.untuned),
    )


def _start(claimed: Stage, stack: ExitStack) -> dict[str, Child]:
    """One process an engine, starting while the model is compiled."""
    env = {"TVM_NUM_THREADS": str(claimed.target.num_cores)}
    engines = {
        name: stack.enter_context(Child("workers.tvm.engines", env=env, name=f"{name} engine"))
        for name in ENGINES
    }
    for child in engines.values():
        child.start()
    return engines


def _load(engines: dict[str, Child], claimed: Stage, files: _Files) -> dict[str, Child]:
    """The engines that hold the model; all load at once, before any is timed."""
    for name, child in engines.items():
        method, params = _loading(name, claimed, files)
        child.send(method, **params, inputs_npz=str(files.stand.inputs))
    return {name: child for name, child in engines.items() if _loaded(child)}


def _loading(name: str, claimed: Stage, files: _Files) -> tuple[str, dict[str, Any]]:
    if name == "onnxruntime":
        return "load_onnxruntime", {"model_path": str(files.stand.model), "threads": claimed.target.num_cores}
    library = files.built.library if name == "tuned" else files.untuned
    return "load_library", {"library": str(library), "target": claimed.target.text}


def _loaded(child: Child) -> bool:
    try:
        child.receive(RUN_TIMEOUT_SEC)
    except Unavailable:  # onnxruntime is an optional comparison: the report simply has one engine less
        return False
    return True


def _compare(graphs: Child, engines: dict[str, Child], files: _Files) -> dict[str, Any]:
    for name, child in engines.items():
        child.call("save_outputs", RUN_TIMEOUT_SEC, outputs_npz=str(files.outputs(name)))
        child.suspend()
    errors = {f"error_vs_{name}": _error(graphs, files, name) for name in engines if name != "tuned"}
    return {"latency_us": race(engines), **errors}


def _error(graphs: Child, files: _Files, other: str) -> float:
    outputs, expected = str(files.outputs("tuned")), str(files.outputs(other))
    return float(graphs.call("compare_models", RUN_TIMEOUT_SEC, outputs_npz=outputs, expected_npz=expected))
