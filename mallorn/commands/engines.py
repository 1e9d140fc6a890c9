"""One model in several engines on this machine: each in a process of its own, compared and timed in turn."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from mallorn.commands.environ import search_path
from mallorn.commands.exported import Exported

SEED: Final = 0
COMPILE_TIMEOUT_SEC: Final = 3600.0
RUN_TIMEOUT_SEC: Final = 600.0
ROUNDS: Final = 7
BURST_US: Final = 300_000.0
MOST_CALLS: Final = 300
# onnxruntime's threads spin on for a moment after a call, at the cost of whoever runs next.
REST_SEC: Final = 0.2


class Callee(Protocol):
    """A child process, as far as it is used here."""

    def call(self, method: str, timeout_sec: float, /, **params: Any) -> Any: ...


class EngineRoom:
    """Compiles a model for an exported directory's target and keeps its engines while it is open."""

    def __init__(self, model: Path, exported: Exported, folder: Path, stack: ExitStack) -> None:
        self._model = str(model.absolute())
        self._exported = exported
        self.folder = folder
        self._stack = stack
        self._graphs = self._child("workers.tvm.graphs")
        self._inputs: str | None = None

    def compile_tuned(self, library: Path) -> dict[str, Any]:
        """Compile with the schedules; how many workloads they cover, and the bad lines of their logs."""
        answer = self._graphs.call(
            "compile_model",
            COMPILE_TIMEOUT_SEC,
            model_path=self._model,
            schedules_dir=str(self._exported.directory.absolute()),
            target=self._exported.target.text,
            recipe=self._exported.recipe,
            out_so=str(library),
            input_shapes=self._exported.input_shapes,
        )
        return dict(answer)

    def compile_untuned(self, library: Path) -> None:
        """Compile as TVM does by itself."""
        self._graphs.call(
            "compile_default",
            COMPILE_TIMEOUT_SEC,
            model_path=self._model,
            target=self._exported.target.text,
            out_so=str(library),
            input_shapes=self._exported.input_shapes,
        )

    def load(self, library: Path) -> Callee:
        """A process that holds a compiled library."""
        child = self._child("workers.tvm.engines")
        child.call(
            "load_library",
            RUN_TIMEOUT_SEC,
            library=str(library),
            target=self._exported.target.text,
            inputs_npz=self.inputs,
        )
        return child

    def load_onnxruntime(self) -> Callee | None:
        """A process that holds the model in onnxruntime; None where that is missing or no match."""
        if find_spec("onnxruntime") is None or not self._exported.target.is_cpu:
            return None
        child = self._child("workers.tvm.engines")
        threads = self._exported.target.num_cores
        child.call(
            "load_onnxruntime",
            RUN_TIMEOUT_SEC,
            model_path=self._model,
            inputs_npz=self.inputs,
            threads=threads,
        )
        return child

    def error(self, engine: Callee, reference: Callee) -> float:
        """The relative error of an engine's outputs against another's, on the same random inputs."""
        files = [str(self.folder / f"{name}.npz") for name in ("ours", "theirs")]
        for child, file in zip((engine, reference), files, strict=True):
            child.call("save_outputs", RUN_TIMEOUT_SEC, outputs_npz=file)
        return float(
            self._graphs.call("compare_models", RUN_TIMEOUT_SEC, outputs_npz=files[0], expected_npz=files[1])
        )

    @property
    def inputs(self) -> str:
        """Random inputs, made once."""
        if self._inputs is None:
            self._inputs = str(self.folder / "inputs.npz")
            self._graphs.call(
                "make_inputs",
                RUN_TIMEOUT_SEC,
                model_path=self._model,
                inputs_npz=self._inputs,
                seed=SEED,
                input_shapes=self._exported.input_shapes,
                input_ranges=self._exported.input_ranges,
            )
        return self._inputs

    def _child(self, module: str) -> Callee:
        from workers.children.child import Child

        env = {"TVM_NUM_THREADS": str(self._exported.target.num_cores), "PATH": search_path()}
        return self._stack.enter_context(Child(module, env=env))


@contextmanager
def engine_room(model: Path, exported: Exported) -> Iterator[EngineRoom]:
    """Open a room; its processes and files are gone afterwards."""
    with TemporaryDirectory(prefix="mallorn-") as folder, ExitStack() as stack:
        yield EngineRoom(model, exported, Path(folder), stack)


@dataclass(frozen=True)
class Timing:
    """Latencies of one engine, a burst each, in microseconds."""

    bursts_us: tuple[float, ...]

    def as_json(self) -> dict[str, float]:
        return {"median": median(self.bursts_us), "low": min(self.bursts_us), "high": max(self.bursts_us)}


def time_in_turn(engines: Mapping[str, Callee], rounds: int = ROUNDS) -> dict[str, Timing]:
    """Time engines a burst each in turn, the others idle, so that a slow spell of the machine hits all."""
    calls = {name: _calls_of(engine) for name, engine in engines.items()}
    bursts: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, engine in engines.items():
            time.sleep(REST_SEC)
            bursts[name] += engine.call("time_bursts", RUN_TIMEOUT_SEC, bursts=1, number=calls[name])
    return {name: Timing(tuple(values)) for name, values in bursts.items()}


def _calls_of(engine: Callee) -> int:
    (once_us,) = engine.call("time_bursts", RUN_TIMEOUT_SEC, bursts=1, number=1)
    return max(3, min(MOST_CALLS, int(BURST_US / max(once_us, 1.0))))
