"""One model in several engines on this machine, each in a process of its own."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from cli.exported import Exported
from cli.parts import installed
from mallorn.exporting import as_onnx
from stack.environ import search_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.faces.engine import Engine
    from workers.faces.graphs import Compiled, ModelTask

SEED: Final = 0


class EngineRoom:
    """Compiles a model for an exported directory's target and keeps its engines while it is open."""

    def __init__(
        self, model: Path, exported: Exported, folder: Path, stack: ExitStack, threads: int | None
    ) -> None:
        from workers.faces.graphs import Graphs

        self._model = str(model.absolute())
        self._exported = exported
        self.target = exported.target
        self._threads = threads or exported.target.num_cores
        self.folder = folder
        self._stack = stack
        self._graphs = self._stack.enter_context(Graphs(env=self._env))
        self._inputs: str | None = None

    def compile_tuned(self, library: Path) -> "Compiled":
        """Compile with the schedules; how many workloads they cover, and the bad lines of their logs."""
        return self._graphs.compile_model(
            model_path=self._model,
            schedules_dir=str(self._exported.directory.absolute()),
            target=self.target.text,
            recipe=self._exported.recipe,
            out_so=str(library),
            input_shapes=self._exported.input_shapes,
        )

    def compile_untuned(self, library: Path) -> None:
        """Compile as TVM does by itself."""
        shapes = self._exported.input_shapes
        self._graphs.compile_default(self._model, self.target.text, str(library), shapes)

    def load(self, library: Path) -> "Engine":
        """A process that holds a compiled library."""
        engine = self._engine()
        engine.load_library(str(library), self.target.text, self.inputs)
        return engine

    def tasks(self) -> "Sequence[ModelTask]":
        """The model's workloads, as they were tuned."""
        recipe, shapes = self._exported.recipe, self._exported.input_shapes
        return self._graphs.extract(self._model, self.target.text, recipe, shapes).tasks

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
        return self._graphs.compare_models(*files)

    @property
    def inputs(self) -> str:
        """Random inputs, made once."""
        if self._inputs is None:
            self._inputs = str(self.folder / "inputs.npz")
            shapes, ranges = self._exported.input_shapes, self._exported.input_ranges
            self._graphs.make_inputs(self._model, self._inputs, SEED, shapes, ranges)
        return self._inputs

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
