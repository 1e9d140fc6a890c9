"""One model in several engines on this machine, each in a process of its own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from cli.exported import Exported
from cli.parts import installed
from mallorn.exporting import as_onnx
from stack.environ import search_path

if TYPE_CHECKING:
    from workers.children.child import Child
    from workers.faces.engine import Engine

SEED: Final = 0
COMPILE_TIMEOUT_SEC: Final = 3600.0
RUN_TIMEOUT_SEC: Final = 600.0


class EngineRoom:
    """Compiles a model for an exported directory's target and keeps its engines while it is open."""

    def __init__(
        self, model: Path, exported: Exported, folder: Path, stack: ExitStack, threads: int | None
    ) -> None:
        self._model = str(model.absolute())
        self._exported = exported
        self.target = exported.target
        self._threads = threads or exported.target.num_cores
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
            target=self.target.text,
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
            target=self.target.text,
            out_so=str(library),
            input_shapes=self._exported.input_shapes,
        )

    def load(self, library: Path) -> "Engine":
        """A process that holds a compiled library."""
        engine = self._engine()
        engine.load_library(str(library), self.target.text, self.inputs)
        return engine

    def tasks(self) -> list[dict[str, Any]]:
        """The model's workloads, as they were tuned."""
        found = self._graphs.call(
            "extract",
            COMPILE_TIMEOUT_SEC,
            model_path=self._model,
            target=self.target.text,
            recipe=self._exported.recipe,
            input_shapes=self._exported.input_shapes,
        )
        return list(found["tasks"])

    def load_onnxruntime(self) -> "Engine | None":
        """A process that holds the model in onnxruntime; None where that is missing or no match."""
        if find_spec("onnxruntime") is None or not self.target.is_cpu:
            return None
        engine = self._engine()
        engine.load_onnxruntime(self._model, self.inputs, self._threads)
        return engine

    def peak_gflops(self) -> float:
        """What the target's cores compute at most."""
        from workers.faces.peak import Peak

        peak = self._stack.enter_context(Peak(env=self._env))
        return peak.peak_gflops(self.target.text, self.target.num_cores)

    def error(self, engine: "Engine", reference: "Engine") -> float:
        """The relative error of an engine's outputs against another's, on the same random inputs."""
        files = [str(self.folder / f"{name}.npz") for name in ("ours", "theirs")]
        for each, file in zip((engine, reference), files, strict=True):
            each.save_outputs(file)
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

    def _child(self, module: str) -> "Child":
        from workers.children.child import Child

        return self._stack.enter_context(Child(module, env=self._env))

    def _engine(self) -> "Engine":
        from workers.faces.engine import Engine

        return self._stack.enter_context(Engine(env=self._env))

    @property
    def _env(self) -> dict[str, str]:
        return {"TVM_NUM_THREADS": str(self._threads), "PATH": search_path()}


@contextmanager
def engine_room(model: Path, exported: Exported, threads: int | None = None) -> Iterator[EngineRoom]:
    """Open a room, whose engines run on as many threads as the target has cores unless told otherwise.

    Its processes and files are gone afterwards.
    """
    with installed("worker"):
        for library in ("onnx", "tvm"):  # imported by its processes alone
            if find_spec(library) is None:
                raise ModuleNotFoundError(name=library)
    with as_onnx(model) as file, TemporaryDirectory(prefix="mallorn-") as folder, ExitStack() as stack:
        yield EngineRoom(file, exported, Path(folder), stack, threads)
