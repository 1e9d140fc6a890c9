# mypy: disable-error-code="empty-body"
"""The process for whole models: imports, compiles, and reads and writes directories of schedules."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graphc.phases import PassEntry
from mallorn.core.values.candidate import Sketch
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import CopyLeft, GraphReport, StoredRecipe, TensorSpec
from workers.interfaces.tensor_arguments import Arguments
from workers.sandbox.landlock import READ
from workers.subprocesses.child_process import Child
from workers.subprocesses.typed_method import method

Shapes = dict[str, list[int]]  # of inputs whose shapes the model leaves free
Bounds = dict[str, list[int]]  # of free dimensions: the least and the largest size
Ranges = dict[str, list[int]]  # of integer inputs: the least, and the first that is too large


@dataclass(frozen=True, slots=True)
class ModelTask:
    """A tensor program of a model, and how often it is called."""

    name: str
    weight: int
    key: str
    op: str
    structure: str
    flops: float
    tir: str
    args: Arguments
    extents: tuple[int, ...]  # of the loops of its largest part


@dataclass(frozen=True, slots=True)
class Extraction:
    """What an import finds."""

    graph: GraphReport
    tasks: tuple[ModelTask, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes, gives, and consists of."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    operators: dict[str, int]


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of a log that cannot be used."""

    file: str
    line: int  # from 1
    error: str


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a graph pass did on a model."""

    phase: str
    name: str
    matched: int
    fired: int
    left: dict[str, int]  # by reason
    skipped: str  # why it was not run at all


@dataclass(frozen=True, slots=True)
class RecipeReport:
    """What a recipe did on a model, and what it left of copies."""

    passes: list[PassReport]
    copies: list[CopyLeft]


@dataclass(frozen=True, slots=True)
class Untuned:
    """A model as TVM compiles it by itself."""

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Compiled:
    """A model with schedules, and how far they cover it."""

    found: int
    of: int
    missing: list[str]
    problems: list[BadLine]
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Tuned:
    """A program's schedule and its times, as a tuning record has them."""

    tir: str
    trace: str
    run_secs: list[float]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that does not rebuild."""

    index: int
    error: str


@dataclass(frozen=True, slots=True)
class Scripts:
    """A schedule as people read it."""

    original: str
    scheduled: str
    trace: str


@dataclass(frozen=True, slots=True)
class Restored:
    """A tuning record as a dataset has it."""

    task: ModelTask
    sketch: Sketch
    decisions: tuple[int, ...]
    run_secs: list[float]  # none: it failed
    target: str
    line: int  # of the records, from 1


@dataclass(frozen=True, slots=True)
class RestoredLog:
    """The records of a directory, or of so many of its lines."""

    records: list[Restored]
    problems: list[BadLine]
    tvm_version: str
    lines: int  # of records that were looked at, good and bad


@dataclass(frozen=True, slots=True)
class OpenedDataset:
    """An exported dataset that can be read to its end."""

    rows: int  # of measurements
    widths: dict[str, int]  # how many decisions a sketch has, by its key


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """Some rows of a table, and by its key why each other one is refused."""

    rows: list[dict[str, Any]]
    refused: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reference:
    """What to compare a program's answers by."""

    outputs: list[int]  # indices of its arguments
    reduction_len: int  # how many terms its longest sum has
    rounds: bool = False  # to whole numbers: one at the border of two steps may fall to either
    float16_error: float = 0.0  # relative, that rounding to float16 inside the program may leave


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a program's answers are from those expected."""

    max_error: float
    tolerance: float
    ok: bool


class ModelCompiler(Child):
    """Models are ONNX files, targets canonical texts, libraries shared objects, and arrays npz files.

    All that reads a model raises InvalidModel; all that runs its passes InvalidRequest, too.
    """

    MODULE = "workers.tvm.model_compiler_child"
    SPAWNS = True

    @method(limit_sec=600.0)
    def warm_up(self, target: str) -> None:
        """Load all that models for this target need."""

    @method(limit_sec=600.0)
    def look(self, model_path: str, input_shapes: Shapes) -> Signature:
        """What a model is. Raises InvalidModel where TVM cannot read it."""

    @method(limit_sec=3600.0)
    def extract(self, model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes) -> Extraction:
        """Import a model, run the recipe's first half, and describe every task it is made of."""

    @method(limit_sec=600.0)
    def list_passes(self) -> list[PassEntry]:
        """All graph passes that TVM lacks."""

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
        """Run the first half of a recipe, and report each pass that says what it does.

        The module after each phase is written into `dump_dir`.
        """

    @method(limit_sec=3600.0)
    def read_ahead(
        self,
        model_path: str,
        target: str,
        recipe: StoredRecipe,
        input_shapes: Shapes,
        dynamic: Dynamic | None,
    ) -> None:
        """Read a model that is compiled next."""

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
    ) -> Compiled:
        """Repeat the recipe exactly, apply the schedules, embed the re-laid weights and export `out_so`.

        With `dynamic` for every size of a range.
        """

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
        """What holds each kernel of that library back that more trials do not change."""

    @method(limit_sec=3600.0)
    def extract_range(
        self, model_path: str, target: str, recipe: StoredRecipe, input_shapes: Shapes, bounds: Bounds
    ) -> Extraction:
        """Import a model at a few sizes of a range; each of their tasks, and what computes sizes between."""

    @method(limit_sec=3600.0)
    def compile_default(self, model_path: str, target: str, out_so: str, input_shapes: Shapes) -> Untuned:
        """What TVM makes of the model by itself, without schedules."""

    @method(limit_sec=600.0)
    def make_inputs(
        self, model_path: str, inputs_npz: str, seed: int, input_shapes: Shapes, input_ranges: Ranges
    ) -> list[str]:
        """Write one random array an input under the model's own names, in calling order; the names."""

    @method(limit_sec=600.0)
    def compare_models(self, outputs_npz: str, expected_npz: str) -> float:
        """The worst relative error of two engines' outputs; infinite where their shapes differ."""

    @method(limit_sec=300.0)
    def write_database(self, directory: str, target: str, records: Sequence[Tuned]) -> list[Skipped]:
        """Write records where stock `JSONDatabase(work_dir=...)` finds them; those that it left out."""

    @method(limit_sec=3600.0)
    def read_export(self, directory: str, target: str) -> RestoredLog:
        """Every record of a directory of schedules; those that do not rebuild are problems."""

    @method(limit_sec=1200.0)
    def read_log(self, directory: str, start: int, count: int) -> RestoredLog:
        """So many lines of stock MetaSchedule's log, from one on, each for the target that it names."""

    @method(limit_sec=3600.0)
    def open_dataset(self, directory: str) -> OpenedDataset:
        """Check that an exported dataset can be read to its end. Raises NotFound and InvalidRequest."""

    @method(limit_sec=1200.0)
    def next_rows(self, table: str, size: int) -> DatasetRows | None:
        """The next rows of a table of the opened dataset, names computed again; None after the last ones."""

    @method(limit_sec=60.0)
    def scripts(self, tir: str, trace: str) -> Scripts:
        """A program before and after its full trace, and the trace, as TVMScript."""

    @method(limit_sec=120.0)
    def build_whole(self, tir: str, trace: str, target: str, out_so: str) -> None:
        """Build a scheduled program (its full trace) that takes its arguments as the unscheduled one does."""

    @method(limit_sec=300.0)
    def reference(
        self, tir: str, args: Arguments, seed: int, inputs_npz: str, expected_npz: str
    ) -> Reference:
        """Write random arguments and what the unscheduled program makes of them."""

    @method(limit_sec=60.0)
    def compare(self, outputs_npz: str, expected_npz: str, by: Reference) -> Agreement:
        """Answers beside those that `reference` wrote, each output within the tolerance of its type."""


@contextmanager
def reading(*paths: Path) -> Iterator[ModelCompiler]:
    """A process behind walls that reads these files and folders of a stranger, and no others of the user."""
    readable = tuple((str(path.absolute()), READ) for path in paths)
    with (
        TemporaryDirectory(prefix="mallorn-") as room,
        ModelCompiler(name="reader", room=Path(room), others=readable) as graphs,
    ):
        yield graphs
