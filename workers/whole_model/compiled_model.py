"""Compiles one model on this host, with or without schedules, and creates its engines."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol, Self

from mallorn.core.errors import InvalidModel
from mallorn.core.targets import Target
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe
from mallorn.core.values.machine import Machine
from mallorn.core.values.manifest import Manifest
from mallorn.graphc.export.export_checks import LARGEST_ERROR_ROUNDED, largest_allowed_error
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.interfaces import model_compiler
from mallorn.workers.interfaces.whole_model_engine import Engine, LoadedEngine, NodeDifference, WrongImport
from mallorn.workers.sandbox.landlock import READ
from mallorn.workers.subprocesses.pending_call import PendingCall
from mallorn.workers.tvm.network.graph_recipes import precision_of
from mallorn.workers.whole_model.device_engine import DeviceEngine, DevicePool
from mallorn.workers.whole_model.interleaved_timing import Timeable

# The graph recipe's faster erf and exp cause far smaller errors, a wrong schedule far larger ones.
# An export's script has another limit: it compares only with onnxruntime, which sums in another order.
LARGEST_ERROR: Final = {"float32": 1e-4, **LARGEST_ERROR_ROUNDED}
SEED: Final = 0
DRAWS: Final = 3  # of inputs, for which outputs are compared
CASE_FILE: Final = "wrong-node.npz"
BISECTION: Final = "bisection"  # a process that cuts the model and runs its parts
ALONE: Final = "alone"  # a process with nothing of TVM but its runtime library
ONNXRUNTIME: Final = "onnxruntime"  # the only engine that needs no library


def _kind(engine: str) -> str:
    return ONNXRUNTIME if engine == ONNXRUNTIME else "tvm"


class IdleEngines:
    """Suspended engine processes for reuse, by kind. Leaving the `with` block kills them."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Engine]] = defaultdict(list)

    def resume_engine(self, kind: str) -> Engine | None:
        """Resume an idle process of this kind and return it, or None if there is none."""
        while self._waiting[kind]:
            engine = self._waiting[kind].pop()
            if engine.alive:
                engine.resume()
                return engine
        return None

    def suspend_engine(self, kind: str, engine: Engine) -> None:
        """Suspend a process and keep it until `take` returns it."""
        engine.suspend()
        self._waiting[kind].append(engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for waiting in self._waiting.values():
            for engine in waiting:
                engine.kill()


class ModelEngine(Timeable, Protocol):
    """An inference engine with one model: a process on this host, or a model on a device."""

    @property
    def alive(self) -> bool: ...
    @property
    def pid(self) -> int | None: ...
    def start(self) -> None: ...
    def save_outputs(self, outputs_npz: str, other_inputs: Sequence[str] = ()) -> int: ...


@dataclass(frozen=True, kw_only=True)
class WholeModel:
    """A model, its target and its graph passes. The child process `graphs` compiles it."""

    path: Path
    target: Target
    recipe: StoredRecipe
    source: Path | None = None  # the ONNX file, if `path` is a region of it
    source_shapes: model_compiler.Shapes = field(default_factory=dict)
    input_shapes: model_compiler.Shapes  # the largest of a range
    input_ranges: model_compiler.Ranges
    graphs: model_compiler.ModelCompiler
    folder: Path
    threads: int  # for each engine
    dynamic: Dynamic | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # for the processes of engines
    room: Path | None = None  # folder that engines may read, besides `reads`; None: all files
    reads: Sequence[Path] = ()  # files of the model that lie elsewhere
    samples: Path | None = None  # the user's inputs for checks; None: random ones
    device_pool: DevicePool | None = None  # where TVM's engines run; None: on this host
    import_faults: dict[str, NodeDifference | None] = field(default_factory=dict)  # found, by shapes
    idle: IdleEngines | None = None  # None: processes are not reused

    def begin_import(self) -> PendingCall[None]:
        """Start importing the model. `graphs` is busy until the result is taken."""
        return self.graphs.import_ahead.begin(
            str(self.path), self.target.text, self.recipe, self.input_shapes, self.dynamic
        )

    def compile(
        self, schedules: Path, library: Path, manifest: Manifest | None = None
    ) -> model_compiler.Compiled:
        """Compile the model with a directory of schedules, and write the library; its metadata
        are from the manifest. The result counts tasks with a schedule and lists invalid lines."""
        with HostLock().hold_shared():
            return self.graphs.compile_model(
                model_path=str(self.path),
                schedules_dir=str(schedules),
                target=self.target.text,
                recipe=self.recipe,
                out_so=str(library),
                input_shapes=self.input_shapes,
                dynamic=self.dynamic,
                manifest=manifest,
                source_path=None if self.source is None else str(self.source),
            )

    def compile_untuned(self, library: Path) -> model_compiler.Untuned:
        """Compile the model to a library with TVM's defaults, without tuned schedules."""
        with HostLock().hold_shared():
            return self.graphs.compile_default(
                str(self.path), self.target.text, str(library), self.input_shapes
            )

    def explain_kernels(self, schedules: Path) -> Mapping[str, Sequence[str]]:
        """Return, by kernel, causes of slow code that no schedule would remove."""
        target, shapes = self.target.text, self.input_shapes
        return self.graphs.explain_kernels(
            str(self.path), str(schedules), target, self.recipe, shapes, self.dynamic
        )

    def extraction(self) -> model_compiler.Extraction:
        """Run the passes that precede tuning; return the tasks and a report of passes."""
        return self.graphs.extract(str(self.path), self.target.text, self.recipe, self.input_shapes)

    @cached_property
    def inputs_file(self) -> Path:
        """Path of a file of inputs for all engines, written at its first use."""
        return self._samples[0] if self.samples is not None else self._make_inputs(SEED)

    @cached_property
    def other_inputs_files(self) -> list[Path]:
        """Paths of further draws of inputs, for checks; none for a model on a device."""
        if self.device_pool is not None:
            return []
        if self.samples is not None:
            return self._samples[1:]
        return [self._make_inputs(seed) for seed in range(SEED + 1, SEED + DRAWS)]

    @cached_property
    def _samples(self) -> list[Path]:
        shapes = self.source_shapes if self.source is not None else self.input_shapes
        region = None if self.source is None else str(self.path)
        arguments = str(self.source or self.path), str(self.samples), str(self.folder), shapes, region
        return [Path(path) for path in self.graphs.split_samples(*arguments)]

    def whole_file(self) -> "WholeModel | None":
        """Return the model of the whole file, which only onnxruntime runs; None if this is it."""
        if self.source is None:
            return None
        shapes = self.source_shapes
        return replace(self, path=self.source, source=None, input_shapes=shapes, input_ranges={})

    def _make_inputs(self, seed: int) -> Path:
        kind = sha256(json.dumps([self.path.name, self.input_shapes]).encode()).hexdigest()[:16]
        path = self.folder / f"inputs-{kind}-{seed}.npz"
        self.graphs.make_inputs(str(self.path), str(path), seed, self.input_shapes, self.input_ranges)
        return path

    def engine(self, name: str) -> ModelEngine:
        """Return an idle engine process, or a new one that starts on demand. If the job
        uses a device, TVM's engines are models on it; onnxruntime runs on this host."""
        if self.device_pool is not None and name != ONNXRUNTIME:
            return DeviceEngine(self.device_pool, name)
        if self.idle is not None and (waiting := self.idle.resume_engine(_kind(name))):
            waiting.name = f"{name} engine"
            return waiting
        return self._new_engine(f"{name} engine", _kind(name))

    def _new_engine(self, name: str, kind: str) -> Engine:
        readable = () if self.room is None else (self.room, *self.reads)
        return Engine(
            env={"TVM_NUM_THREADS": str(self.threads), **self.env},
            name=name,
            room=self._own_folder(kind),
            others=tuple((str(path), READ) for path in readable),
        )

    def judge_import(
        self, error: float, own_error: float | None, keep_case: Callable[[Path], object]
    ) -> NodeDifference | None:
        """Return why the outputs differ from onnxruntime's by `error` although the import is right:
        a node that onnxruntime rounds more, or a model that magnifies rounding; else None.

        Raises WrongImport if the import is wrong; `keep_case` copies the file with the node
        and its inputs, and returns its place.
        """
        case = (self._own_folder(BISECTION) or self.folder) / CASE_FILE
        known = self.import_faults.get(key := json.dumps(self.input_shapes))
        explains_less = known is not None and known.own_change is not None and error > known.error
        if key not in self.import_faults or explains_less:
            limit = max(LARGEST_ERROR["float32"], largest_allowed_error(self.path, own_error))
            model = str(self.path), self.target.text, self._all_inputs, self.input_shapes
            with self._new_engine("bisection", BISECTION) as engine:
                self.import_faults[key] = engine.bisect_import(*model, limit, str(case), error)
        difference = self.import_faults[key]
        if difference is None or not difference.is_import_wrong:
            return difference
        hint = "another release of Mallorn may import it"
        if difference.node:
            hint = f"report it with the node and its inputs: {keep_case(case)}"
        raise WrongImport(difference.description, hint=hint)

    @property
    def _all_inputs(self) -> list[str]:
        return [str(path) for path in (self.inputs_file, *self.other_inputs_files)]

    def _own_folder(self, kind: str) -> Path | None:
        """Create and return the only folder that these engines may write, if sandboxed."""
        if self.room is None:
            return None
        (folder := self.room / f"{kind}-engines").mkdir(exist_ok=True)
        return folder

    def release(self, name: str, engine: ModelEngine, kills: bool) -> None:
        """Suspend an engine's process for the next engine of its kind. Kill it if processes
        are not reused, or if `kills` is set."""
        if self.idle is not None and isinstance(engine, Engine) and engine.alive and not kills:
            self.idle.suspend_engine(_kind(name), engine)
        else:
            engine.kill()

    def begin_loading(self, engine: ModelEngine, library: Path | None) -> Callable[[], LoadedEngine]:
        """Start loading a library into an engine; return the function that waits for the result.
        If `library` is None, the engine is onnxruntime, which loads the model's file."""
        if isinstance(engine, DeviceEngine) and library is not None:
            return engine.begin_loading(library, self.inputs_file)
        if not isinstance(engine, Engine):
            raise TypeError(f"{engine!r} loads no such model")
        if library is None:
            others = [str(path) for path in self.other_inputs_files]
            return engine.load_onnxruntime.begin(
                str(self.path), str(self.inputs_file), self.threads, others
            ).wait
        return engine.load_library.begin(str(library), self.target.text, str(self.inputs_file)).wait

    def check_alone(self, library: Path, outputs: Path | None = None) -> None:
        """Run a library as a program does that has only TVM's runtime library, in a process of
        its own. Raises ChildError if it cannot run so, InvalidModel if its outputs are not
        those of the file `outputs`."""
        own_outputs = (self._own_folder(ALONE) or self.folder) / f"{ALONE}-outputs.npz"
        with self._new_engine("runtime", ALONE) as engine:
            engine.run_alone(str(library), self._all_inputs, str(own_outputs))
        error = 0.0 if outputs is None else self.compute_output_error(own_outputs, outputs)
        if not error <= self.accepted_error():
            raise InvalidModel(
                f"in a process of its own it computes something else: relative error {error:.1e}"
            )

    def release_device(self) -> None:
        if self.device_pool is not None and self.device_pool.runner.alive:
            self.device_pool.runner.release_devices()

    def outputs_file(self, name: str) -> Path:
        if self.device_pool is not None and name != ONNXRUNTIME:
            own_folder = self.device_pool.folder
        else:
            own_folder = self._own_folder(_kind(name))
        return (own_folder or self.folder) / f"{name}-outputs.npz"

    def compute_output_error(self, outputs: Path, expected_outputs: Path) -> float:
        """Return the largest relative error of one engine's outputs against another's."""
        return self.graphs.compare_models(str(outputs), str(expected_outputs))

    def find_constant_outputs(self, outputs: Path) -> list[int]:
        """Return the indices of outputs that are one number for all draws of inputs:
        comparing them proves nothing."""
        return self.graphs.find_constant_outputs(str(outputs), 1 + len(self.other_inputs_files))

    @property
    def precision(self) -> str:
        """Precision of the model's products, as job options name it."""
        return precision_of(self.recipe)

    def accepted_error(self, own_error: float | None = None) -> float:
        """Return the accepted relative error between engines. For a quantised model, the
        error of onnxruntime itself (`own_error`) raises it."""
        return max(LARGEST_ERROR[self.precision], largest_allowed_error(self.path, own_error))

    def machine(self) -> Machine:
        """Return this host's peak compute and bandwidths. Raises Unavailable, ChildError."""
        # Imported here because only `profile` may load numpy.
        from mallorn.workers.hardware_probe.measure_machine import probe_host_machine

        return probe_host_machine(self.target, self.env)
