"""The whole model: compiled with the winners, checked, and timed beside the untuned build and onnxruntime."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import Unavailable
from mallorn.core.hosts import host_id
from workers.children.child import Child
from workers.engine_race import race
from workers.stage import Stage

COMPILE_TIMEOUT_SEC: Final = 1800.0
RUN_TIMEOUT_SEC: Final = 600.0
ENGINES: Final = ("untuned", "tuned", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Files:
    """What the engines read."""

    model: Path
    schedules: Path
    folder: Path

    @property
    def tuned(self) -> Path:
        return self.folder / "tuned.so"

    @property
    def untuned(self) -> Path:
        return self.folder / "untuned.so"

    @property
    def inputs(self) -> Path:
        return self.folder / "inputs.npz"

    def outputs(self, engine: str) -> Path:
        return self.folder / f"{engine}-outputs.npz"


def judge(claimed: Stage, graphs: Child, files: Files) -> dict[str, Any]:
    """The model's part of the report; says why where the model cannot run on this worker's host."""
    with ExitStack() as stack:
        here = _device_is_here(claimed)
        engines = _start(claimed, stack) if here else {}
        compiled = _compile(claimed, graphs, files)
        report = {name: compiled[name] for name in ("found", "of", "missing")}
        if not here:
            return report | {"not_timed": "the device is on another host than this worker"}
        return report | _compare(graphs, _load(engines, claimed, files), files)


def _compile(claimed: Stage, graphs: Child, files: Files) -> dict[str, Any]:
    shapes = claimed.options.input_shapes
    graph = claimed.job.graph or {}
    common = {"model_path": str(files.model), "target": claimed.target.text, "input_shapes": shapes}
    compiled: dict[str, Any] = graphs.call(
        "compile_model",
        COMPILE_TIMEOUT_SEC,
        **common,
        schedules_dir=str(files.schedules),
        recipe=graph["recipe"],
        out_so=str(files.tuned),
    )
    if claimed.target.is_cpu:
        graphs.call("compile_default", COMPILE_TIMEOUT_SEC, **common, out_so=str(files.untuned))
    graphs.call(
        "make_inputs",
        RUN_TIMEOUT_SEC,
        model_path=str(files.model),
        inputs_npz=str(files.inputs),
        seed=0,
        input_shapes=shapes,
        input_ranges=graph["input_ranges"],
    )
    return compiled


def _device_is_here(claimed: Stage) -> bool:
    devices = claimed.runtime.fleet.devices(claimed.target)
    return claimed.target.is_cpu and any(device.endpoint.host_id == host_id() for device in devices)


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


def _load(engines: dict[str, Child], claimed: Stage, files: Files) -> dict[str, Child]:
    """The engines that hold the model; all load at once, before any is timed."""
    for name, child in engines.items():
        method, params = _loading(name, claimed, files)
        child.send(method, **params, inputs_npz=str(files.inputs))
    return {name: child for name, child in engines.items() if _loaded(child)}


def _loading(name: str, claimed: Stage, files: Files) -> tuple[str, dict[str, Any]]:
    if name == "onnxruntime":
        return "load_onnxruntime", {"model_path": str(files.model), "threads": claimed.target.num_cores}
    library = files.tuned if name == "tuned" else files.untuned
    return "load_library", {"library": str(library), "target": claimed.target.text}


def _loaded(child: Child) -> bool:
    try:
        child.receive(RUN_TIMEOUT_SEC)
    except Unavailable:  # onnxruntime is an optional comparison: the report simply has one engine less
        return False
    return True


def _compare(graphs: Child, engines: dict[str, Child], files: Files) -> dict[str, Any]:
    for name, child in engines.items():
        child.call("save_outputs", RUN_TIMEOUT_SEC, outputs_npz=str(files.outputs(name)))
        child.suspend()
    errors = {f"error_vs_{name}": _error(graphs, files, name) for name in engines if name != "tuned"}
    return {"latency_us": race(engines), **errors}


def _error(graphs: Child, files: Files, other: str) -> float:
    outputs, expected = str(files.outputs("tuned")), str(files.outputs(other))
    return float(graphs.call("compare_models", RUN_TIMEOUT_SEC, outputs_npz=outputs, expected_npz=expected))
