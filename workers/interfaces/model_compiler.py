# mypy: disable-error-code="empty-body"
"""Child process that imports and compiles models and handles schedule directories."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.core.values.candidate import Sketch
from mallorn.core.values.dataset import ScheduleScripts
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import GraphReport, Region, RemainingCopy, StoredRecipe, TensorSpec
from mallorn.core.values.manifest import Manifest
from mallorn.graphc.phases import PassEntry
from mallorn.workers.interfaces.output_comparison import Agreement, Reference
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.sandbox.landlock import READ, WRITE
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import method

REGION: Final = "region.onnx"  # file of a model's compiled part, in the folder of the child
Shapes = dict[str, list[int]]  # by input, for inputs with free dimensions
Bounds = dict[str, list[int]]  # by free dimension: smallest and largest size
Ranges = dict[str, list[int]]  # by integer input: lowest value, and highest exclusive


@dataclass(frozen=True, slots=True)
class ModelTask:
    """A tensor program of a model, and the number of calls per run (`weight`)."""

    name: str
    weight: int
    key: str
    op: str
    structure: str
    flops: float
    tir: str
    args: Arguments
    extents: tuple[int, ...]  # loop extents of its main block


@dataclass(frozen=True, slots=True)
class Extraction:
    """The result of importing a model: its graph report and its tasks."""

    graph: GraphReport
    tasks: tuple[ModelTask, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Inputs, outputs and operator counts of a model."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    operators: dict[str, int]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A log line that cannot be used, and the reason."""

    file: str
    line: int  # from 1
    error: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.error}"


@dataclass(frozen=True, slots=True)
class PassReport:
    """Numbers of a graph pass's matches and rewrites, and why it left other matches."""

    phase: str
    name: str
    matched: int
    fired: int
    left: dict[str, int]  # matches not rewritten, by reason
    skipped: str  # why the pass was not run; empty if it ran


@dataclass(frozen=True, slots=True)
class RecipeReport:
    """Effects of a model's graph passes, and the functions left that only move data."""

    passes: list[PassReport]
    copies: list[RemainingCopy]


@dataclass(frozen=True, slots=True)
class Untuned:
    """Library size in bytes and compile time of a model with TVM's default schedules."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Compiled:
    """The result of compiling: `found` of the model's `of` tasks have a schedule."""

    found: int
    of: int
    missing: list[str]
    problems: list[BadLine]
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    bytes: int
    seconds: float
    cpu_features: list[str] = field(default_factory=list)  # that it needs, as Linux names them
    applied: list[str] = field(default_factory=list)  # tasks whose compiled functions come from a record


@dataclass(frozen=True, slots=True)
class Tuned:
    """A program with its schedule and run times, as in a tuning record."""

    tir: str
    trace: str
    run_secs: list[float]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A tuning record that could not be written because its schedule cannot be rebuilt."""

    index: int
    error: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A tuning record converted to the form that the dataset stores."""

    task: ModelTask
    sketch: Sketch
    decisions: tuple[int, ...]
    run_secs: list[float]  # empty if the candidate failed
    target: str
    line: int  # line in the records file, from 1


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """The records of a schedule directory, or of a range of its lines."""

    records: list[Restored]
    problems: list[BadLine]
    tvm_version: str
    lines: int  # number of record lines read, good and bad


@dataclass(frozen=True, slots=True)
class OpenedDataset:
    """An exported dataset that was checked to be readable to its end."""

    rows: int  # number of measurements
    widths: dict[str, int]  # number of decisions of each sketch, by sketch key


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """A batch of a table's rows, and reasons why other rows were refused, by row key."""

    rows: list[dict[str, Any]]
    refused: dict[str, str]


class ModelCompiler(Child):
    """Child process that imports and compiles whole models. Models are ONNX files, targets
    canonical texts, libraries shared objects, arrays npz files. Methods that read a model
    raise InvalidModel; methods that run passes also raise InvalidRequest."""

    MODULE = "mallorn.workers.tvm.model_compiler_child"
    SPAWNS = True

    @method(limit_sec=600.0)
    def warm_up(self, target: str) -> None:
        """Load TVM and everything else that compiling for this target needs."""

    @method(limit_sec=600.0)
    def read_signature(self, model_path: str, input_shapes: Shapes) -> Signature:
        """Return the model's inputs, outputs and operator counts. Raises InvalidModel."""

    @method(limit_sec=3600.0)
    def extract(self, model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes) -> Extraction:
        """Import a model, run the recipe's passes before tuning, and return all tasks."""

    @method(limit_sec=3600.0)
    def find_region(
        self, model_path: str, target: str, input_shapes: Shapes, region_path: str | None
    ) -> Region | None:
        """Divide a model whose import fails; describe the largest part that can be compiled, and
        write it as an ONNX file with `region_path`. None if nothing worth a call can be compiled."""

    @method(limit_sec=600.0)
    def cut_region(self, model_path: str, input_shapes: Shapes, region: Region, region_path: str) -> None:
        """Write a region of a model as an ONNX file, which has fixed shapes. Raises
        InvalidModel if the model lacks it."""

    @method(limit_sec=600.0)
    def list_passes(self) -> list[PassEntry]:
        """Return all graph passes that Mallorn adds to TVM's."""

    @method(limit_sec=3600.0)
    def report_passes(
        self,
        model_path: str,
        target: str,
        recipe: str,
        input_shapes: Shapes,
        without: list[str],
        dump_dir: str | None,
    ) -> RecipeReport:
        """Run the recipe's graph passes that precede tuning, except those in `without`;
        report how often each matched and rewrote the model. With `dump_dir`, write the
        module there after each phase. Raises UnknownName if `without` names no pass."""

    @method(limit_sec=3600.0)
    def import_ahead(
        self,
        model_path: str,
        target: str,
        recipe: StoredRecipe,
        input_shapes: Shapes,
        dynamic: Dynamic | None,
    ) -> None:
        """Import a model, unless it is large, so that the next `compile_model` finds it."""

    @method(limit_sec=3600.0)
    def compile_model(
        self,
        model_path: str,
        schedules_dir: str | None,
        target: str,
        recipe: StoredRecipe,
        out_so: str,
        input_shapes: Shapes,
        dynamic: Dynamic | None = None,
        manifest: Manifest | None = None,
        source_path: str | None = None,
    ) -> Compiled:
        """Run the recipe's graph passes, apply the schedules, embed weights in the
        schedules' layouts and export `out_so`. With `dynamic`, the model is compiled for
        each size to tune, and the library serves all sizes. Its metadata are from
        `manifest`, and name the ONNX file `source_path` that a region is cut from. Raises
        NotFound; InvalidRequest if a compiler refuses it, HostFault without one."""

    @method(limit_sec=3600.0)
    def explain_kernels(
        self,
        model_path: str,
        schedules_dir: str,
        target: str,
        recipe: StoredRecipe,
        input_shapes: Shapes,
        dynamic: Dynamic | None,
    ) -> dict[str, list[str]]:
        """Return remarks on each task's code: limits that more trials would not lift."""

    @method(limit_sec=3600.0)
    def extract_range(
        self, model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, bounds: Bounds
    ) -> Extraction:
        """Import a model at selected sizes (points) of its free dimensions; return the tasks
        of all points, with weights by which all points count the same. Raises InvalidModel
        if the range is invalid, or if the model cannot run at sizes between points."""

    @method(limit_sec=3600.0)
    def compile_default(self, model_path: str, target: str, out_so: str, input_shapes: Shapes) -> Untuned:
        """Compile the model as stock TVM does, with its default schedules, to `out_so`."""

    @method(limit_sec=600.0)
    def make_inputs(
        self, model_path: str, inputs_npz: str, seed: int, input_shapes: Shapes, input_ranges: Ranges
    ) -> list[str]:
        """Write a random array per input, zeros and ones without a range; return names."""

    @method(limit_sec=600.0)
    def split_samples(
        self, model_path: str, samples_npz: str, folder: str, input_shapes: Shapes, region_path: str | None
    ) -> list[str]:
        """Write each draw of a user's inputs to a file in `folder`; return the files. For a
        region of the model, write what onnxruntime computes for its inputs.
        Raises InvalidModel if names, types or shapes are not the model's."""

    @method(limit_sec=600.0)
    def compare_models(self, outputs_npz: str, expected_npz: str) -> float:
        """Return the largest relative error of the outputs; infinite if shapes differ."""

    @method(limit_sec=600.0)
    def find_constant_outputs(self, outputs_npz: str, draws: int) -> list[int]:
        """Return the indices of outputs of which all elements are one number in all draws."""

    @method(limit_sec=300.0)
    def write_database(self, directory: str, target: str, records: Sequence[Tuned]) -> list[Skipped]:
        """Write records for TVM's ``JSONDatabase(work_dir=...)``; return the skipped ones."""

    @method(limit_sec=3600.0)
    def read_schedule_directory(self, directory: str, target: str) -> RestoredLog:
        """Read a directory's schedules; `problems` has those that cannot be rebuilt."""

    @method(limit_sec=1200.0)
    def read_metaschedule_log(self, directory: str, start: int, count: int) -> RestoredLog:
        """Read `count` lines of a MetaSchedule log, each for the target that it names. Bad
        lines of its workload file are reported with those from `start` 0 only."""

    @method(limit_sec=3600.0)
    def open_dataset(self, directory: str) -> OpenedDataset:
        """Check that a dataset is readable to its end. Raises NotFound if a file is
        missing, InvalidRequest if one is unreadable."""

    @method(limit_sec=1200.0)
    def next_rows(self, table: str, size: int) -> DatasetRows | None:
        """Return the next rows of a table with recomputed keys; None after the last row."""

    @method(limit_sec=60.0)
    def scripts(self, tir: str, trace: str) -> ScheduleScripts:
        """Return a program before and after its full trace as TVMScript, and the trace."""

    @method(limit_sec=120.0)
    def build_whole_program(self, tir: str, trace: str, target: str, out_so: str) -> None:
        """Build a scheduled program that takes the unscheduled one's arguments."""

    @method(limit_sec=300.0)
    def write_reference(
        self, tir: str, args: Arguments, seed: int, inputs_npz: str, expected_npz: str
    ) -> Reference:
        """Write random arguments, and the outputs of the unscheduled program for them."""

    @method(limit_sec=60.0)
    def compare_outputs(self, outputs_npz: str, expected_npz: str, by: Reference) -> Agreement:
        """Compare outputs with those of `reference`, with a tolerance per data type."""


@contextmanager
def open_sandboxed_compiler(
    *paths: Path, writes: Sequence[Path] = (), env: Mapping[str, str] | None = None
) -> Iterator[ModelCompiler]:
    """Yield a ModelCompiler that reads no user's files but `paths`, and writes to `writes`."""
    rights = [(str(path.absolute()), READ) for path in paths]
    rights += [(str(path), WRITE) for path in writes]
    with (
        TemporaryDirectory(prefix="mallorn-") as room,
        ModelCompiler(env=env, name="TVM", room=Path(room), others=tuple(rights)) as graphs,
    ):
        yield graphs
