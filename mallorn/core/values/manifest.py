"""What stands in an export's manifest.json: one schema for who writes it and who reads it."""

from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from mallorn.core.errors import InvalidRequest
from mallorn.core.states import SEARCH, Mode
from mallorn.core.storable_json import read_json, told
from mallorn.core.values.base import Value
from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.graph_report import StoredRecipe, TensorSpec

MANIFEST: Final = "manifest.json"
# As TVM's MetaSchedule names the files of a database.
WORKLOADS: Final = "database_workload.json"
RECORDS: Final = "database_tuning_record.json"
DATABASE: Final = (WORKLOADS, RECORDS)
# The run time in the record of a schedule that was not timed: TVM ignores records without a time. It takes
# the fastest of several, so that a measured one comes before this.
UNTIMED_SEC: Final = 1e8


class Version(StrEnum):
    """Which schedules: the fastest alone or, where `--contention` found others, beside programs."""

    ALONE = "alone"
    LOADED = "loaded"

    def file(self, name: str) -> str:
        """What its file of records is called; stock TVM looks for those that are fastest alone."""
        return name if self is Version.ALONE else f"{self}_{name}"


class TunedWorkload(Value):
    """A workload that has a schedule, and how its measurement ended."""

    task: str
    workload: str  # its key
    weight: int
    latency_us: float | None = None  # None: the schedule was not timed
    low_us: float | None = None
    high_us: float | None = None
    max_error: float | None = None  # None: nobody checked what it computes


class MeasuredOn(Value):
    """What must be equal for other times to compare with those of the workloads."""

    host_class: str = "unknown"
    tvm_version: str = "unknown"
    threads: int = 0
    evaluator: dict[str, JsonValue] = {}


class Manifest(Value):
    """What schedules were made for. Only target and recipe are there in every export."""

    job: str = ""
    model: str = ""
    target: str | dict[str, JsonValue]
    tuned_at: float = 0.0  # seconds since the epoch; 0: it does not say
    versions: dict[str, str] = {}
    recipe: StoredRecipe
    inputs: list[TensorSpec] = []
    outputs: list[TensorSpec] = []
    input_shapes: dict[str, list[int]] = {}  # of inputs whose shapes the model leaves free
    dynamic: Dynamic | None = None  # of a range of shapes; those above are the largest then
    input_ranges: dict[str, list[int]] = {}  # of integer inputs, which the model's look-ups bound
    workloads: list[TunedWorkload] = []
    without_schedule: list[str] = []
    measured_on: MeasuredOn = MeasuredOn()
    mode: Mode = SEARCH  # the other modes measure nothing
    carried: dict[str, str] = {}  # SHA-256 of what compiles the model: apply.py and the archive of passes
    measured_by: str = "tvm"  # the measurer: others than tvm may have used no device


def read_manifest(path: Path) -> Manifest:
    """Raises InvalidRequest for a file that is no manifest."""
    try:
        return Manifest.model_validate(read_json(path.read_bytes()))
    except ValueError as error:
        words = " ".join(str(error).splitlines()[1:3]) or told(error)
        message = f"{path} is not a manifest of Mallorn: {words}"
        raise InvalidRequest(message, hint="mallorn tune MODEL --out DIR") from None
