"""Schema of manifest.json, the description of a job's exported schedules."""

from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from mallorn.core.errors import InvalidRequest
from mallorn.core.states import SEARCH, Mode
from mallorn.core.storable_json import quote_untrusted, read_json
from mallorn.core.values.base import Value
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.finish_report import StoredLibrary
from mallorn.core.values.graph_report import Region, StoredRecipe, TensorSpec

MANIFEST: Final = "manifest.json"
LIBRARY: Final = "model.so"  # file name of the compiled model, beside the schedules
# File names of a TVM MetaSchedule database.
WORKLOADS: Final = "database_workload.json"
RECORDS: Final = "database_tuning_record.json"
DATABASE: Final = (WORKLOADS, RECORDS)
# Run time in the record of a schedule that was not timed, because TVM ignores records
# without a time. TVM takes the fastest record, so a measured one has precedence.
UNTIMED_SEC: Final = 1e8
NOT_TIMED: Final = "the schedule was not timed"  # the reason why such a record is no measurement


class ScheduleSet(StrEnum):
    """Set of schedules: the fastest on a quiet host, or those found for a busy host."""

    ALONE = "alone"
    LOADED = "loaded"

    def file(self, name: str) -> str:
        """Return the name of this set's file; stock TVM reads those of ALONE."""
        return name if self is ScheduleSet.ALONE else f"{self}_{name}"


class TunedWorkload(Value):
    """A workload that has a schedule, with its latency and its error."""

    task: str
    workload: str  # its key
    weight: int
    latency_us: float | None = None  # None: the schedule was not timed
    low_us: float | None = None
    high_us: float | None = None
    max_error: float | None = None  # None: the result was not checked


class MeasuredOn(Value):
    """Measuring context: other times compare with the workloads' only if it is equal."""

    host_class: str = "unknown"
    tvm_version: str = "unknown"
    threads: int = 0
    evaluator: dict[str, JsonValue] = {}


class Manifest(Value):
    """Model, target and origin of exported schedules; only target and recipe are mandatory."""

    job: str = ""
    model: str = ""
    target: str | dict[str, JsonValue]
    tuned_at: float = 0.0  # seconds since the epoch; 0: unknown
    versions: dict[str, str] = {}
    recipe: StoredRecipe
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    input_shapes: dict[str, list[int]] = {}  # shapes of inputs that the model leaves free
    dynamic: Dynamic | None = None  # for a range of shapes: those above are the largest
    region: Region | None = None  # the compiled part of the graph; None: all of it
    input_ranges: dict[str, list[int]] = {}  # least and largest value of integer inputs
    workloads: list[TunedWorkload] = []
    without_schedule: list[str] = []
    measured_on: MeasuredOn = MeasuredOn()
    mode: Mode = SEARCH  # the other modes measure nothing
    carried: dict[str, str] = {}  # SHA-256 of what compiles the model: apply.py, the passes
    library: StoredLibrary | None = None  # the compiled model that is stored with these schedules
    measured_by: str = "tvm"  # the measurer; only `tvm` is sure to have used a device


def read_manifest(path: Path) -> Manifest:
    """Read a manifest file. Raises InvalidRequest if it is not a valid manifest."""
    try:
        return Manifest.model_validate(read_json(path.read_bytes()))
    except ValueError as error:
        words = " ".join(str(error).splitlines()[1:3]) or quote_untrusted(error)
        message = f"{path} is not a manifest of Mallorn: {words}"
        raise InvalidRequest(message, hint="mallorn tune MODEL --out DIR") from None
