"""One model on this host: compiled with schedules and without, and what its engines need to hold it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from mallorn.core.targets import Target
from mallorn.core.values.dynamic import Dynamic
from mallorn.core.values.graph import StoredRecipe
from mallorn.core.values.machine import Machine
from workers.children.pending import Pending
from workers.faces.engine import Engine, LoadedEngine
from workers.faces.graphs import Compiled, Graphs, ModelTask, Ranges, Shapes, Untuned
from workers.host.alone import Host
from workers.racing.agreement import largest_error

SEED: Final = 0


@dataclass(frozen=True, kw_only=True)
class WholeModel:
    """A model, its target and its recipe. It is compiled in `graphs`; files are written into `folder`."""

    path: Path
    target: Target
    recipe: StoredRecipe
    input_shapes: Shapes  # of a range the largest
    input_ranges: Ranges
    graphs: Graphs
    folder: Path
    threads: int  # of each engine
    dynamic: Dynamic | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # for the processes of engines
    room: Path | None = None  # all that engines can reach; None: a user's own files may lie anywhere

    def compile(self, schedules: Path, library: Path) -> Compiled:
        """Compile with the schedules of a directory; how far they cover the model, and their bad lines."""
        given = str(self.path), str(schedules), self.target.text, self.recipe, str(library)
        with Host().shared():
            if self.dynamic is not None:
                return self.graphs.compile_range(*given, self.dynamic)
            return self.graphs.compile_model(*given, self.input_shapes)

    def compile_untuned(self, library: Path) -> Untuned:
        """Compile as TVM does by itself."""
        with Host().shared():
            return self.graphs.compile_default(
                str(self.path), self.target.text, str(library), self.input_shapes
            )

    def tasks(self) -> Sequence[ModelTask]:
        """The model's workloads, as they are tuned."""
        extraction = self.graphs.extract(str(self.path), self.target.text, self.recipe, self.input_shapes)
        return extraction.tasks

    @cached_property
    def inputs(self) -> Path:
        """Random inputs, made once, for every engine."""
        path = self.folder / "inputs.npz"
        self.graphs.make_inputs(str(self.path), str(path), SEED, self.input_shapes, self.input_ranges)
        return path

    def engine(self, name: str) -> Engine:
        """A process for one engine; it starts when it is asked to."""
        return Engine(env=self._env, name=f"{name} engine", room=self.room)

    def begin_loading(self, engine: Engine, library: Path | None) -> Pending[LoadedEngine]:
        """Have an engine hold a library, or, without one, the model itself in onnxruntime."""
        if library is None:
            return engine.load_onnxruntime.begin(str(self.path), str(self.inputs), self.threads)
        return engine.load_library.begin(str(library), self.target.text, str(self.inputs))

    def outputs(self, name: str) -> Path:
        """Where an engine writes what it computes."""
        return self.folder / f"{name}-outputs.npz"

    def error(self, outputs: Path, expected: Path) -> float:
        """The worst relative error of one engine's outputs against another's."""
        return self.graphs.compare_models(str(outputs), str(expected))

    @cached_property
    def largest_error(self) -> float:
        """How far its answers may be from the untuned model's."""
        return largest_error(self.recipe, self.path)

    def machine(self) -> Machine:
        """What this host computes and moves at most, as its target. Raises Unavailable, ChildError."""
        from workers.probing.here import machine_here  # needs numpy, which only `profile` may ask for

        return machine_here(self.target, self.env)

    @property
    def _env(self) -> dict[str, str]:
        return {"TVM_NUM_THREADS": str(self.threads), **self.env}
