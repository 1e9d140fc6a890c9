"""Models, measurements and schedules in the database, as the coordinator sends them."""

from datetime import date
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.outcomes import Outcome
from mallorn.core.values.base import Value

SAMPLES: Final = "mallorn-samples.npz"  # the member with inputs for checks
MODEL: Final = "model.onnx"  # the first member of an uploaded tar, whatever the file is called


class UploadedModel(Value):
    """An uploaded ONNX model."""

    id: Annotated[str, Field(description="SHA-256 of its bytes.")]
    name: str = ""
    size_bytes: int = 0
    created_at: float = 0.0


class UploadStatus(Value):
    """An unfinished upload of a model in parts."""

    model_id: Annotated[str, Field(description="SHA-256 that the model must have.")]
    part_bytes: Annotated[int, Field(description="Size of each part but the last.")]
    parts: Annotated[list[int], Field(description="Indices of the parts that were received.")]


class Record(Value):
    """The result of measuring one candidate."""

    id: int
    job_id: str | None = None
    round_id: int | None = None
    slot: int = 0
    kind: str = ""
    workload: Annotated[str, Field(description="The workload's key.")] = ""
    workload_name: str = ""
    target: Annotated[str, Field(description="Canonical JSON.")] = ""
    context_id: Annotated[int | None, Field(description="Times compare only within one context.")] = None
    sketch: str = ""
    decisions: list[int] = []
    outcome: Outcome
    latency_us: float | None = None
    bound_us: Annotated[
        float | None, Field(description="Upper bound in place of a latency: the timing was disturbed.")
    ] = None
    disturbed: Annotated[
        float | None,
        Field(description="Share of its run times that other programs disturbed; null: unknown."),
    ] = None
    run_us: list[float] = []
    error: str | None = None
    device: str | None = None
    build_ms: float | None = None
    run_ms: float | None = None
    predicted: float | None = None
    origin: str = ""
    created_at: float = 0.0


class VerifiedSchedule(Value):
    """A schedule whose outputs agree with those of the unscheduled program."""

    id: int
    job_id: str | None = None
    workload: Annotated[str, Field(description="The workload's key.")] = ""
    workload_name: str = ""
    target: Annotated[str, Field(description="Canonical JSON.")] = ""
    context_id: Annotated[int | None, Field(description="Times compare only within one context.")] = None
    latency_us: Annotated[float, Field(description="Median, measured again in turns with its rivals.")]
    inside_model: Annotated[
        bool, Field(description="Whether it was timed in a whole model; false: by itself, with warm caches.")
    ] = False
    low_us: Annotated[float, Field(description="Lower end of the median's confidence interval.")]
    high_us: Annotated[float, Field(description="Upper end of that interval.")]
    is_bound: Annotated[
        bool, Field(description="Whether its times are only upper bounds, as the timing was disturbed.")
    ] = False
    max_error: Annotated[float, Field(description="Largest relative error against the unscheduled program.")]
    created_at: float = 0.0


class NamedCount(Value):
    """The number of measurements of something, by its name."""

    name: str
    count: int


class DayCount(Value):
    """The number of measurements added on one day."""

    day: Annotated[date, Field(description="UTC.")]
    count: int
    total: Annotated[int, Field(description="Up to the end of the day.")]


class DatasetStats(Value):
    """Counts of measurements; each list of names begins with the largest count."""

    measurements: int = 0
    imported_measurements: Annotated[int, Field(description="Number from other datasets.")] = 0
    workloads: Annotated[int, Field(description="Workloads with measurements.")] = 0
    targets: list[NamedCount] = []
    operators: list[NamedCount] = []
    models: Annotated[list[NamedCount], Field(description="By the model of the job that measured.")] = []
    outcomes: list[NamedCount] = []
    days: list[DayCount] = []
    foreign_records: Annotated[
        list[NamedCount], Field(description="Records of other tuners, by log format.")
    ] = []


class ScheduleScripts(Value):
    """A schedule as TVMScript for reading: integers without a type have 64 bits."""

    original: Annotated[str, Field(description="The program without the schedule.")]
    scheduled: Annotated[str, Field(description="The program with the schedule applied.")]
    trace: Annotated[str, Field(description="The schedule's steps with their decisions, as Python.")]


class WholeSchedule(VerifiedSchedule):
    """A verified schedule with its trace, run times and programs."""

    trace: Annotated[str, Field(description="The complete trace, as JSON for a tuning record.")]
    run_us: Annotated[list[float], Field(description="The run times; their median is `latency_us`.")]
    scripts: Annotated[
        ScheduleScripts | None, Field(description="null: stored by a version that kept no scripts.")
    ] = None


class NearestSchedule(Value):
    """A measured workload near the one that was looked up, and in what it differs."""

    workload: Annotated[str, Field(description="The workload's key.")]
    workload_name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    tvm_version: str
    latency_us: float
    differences: Annotated[
        dict[str, str],
        Field(
            description="Text by field (`operator`, `dtype`, `layout`, `shape`, `graph pass`, `workload`, "
            "`target`, `TVM version`); empty: it fits, but no job of yours verified it."
        ),
    ]


class ScheduleLookup(Value):
    """The schedules that fit a look-up or, if none does, the nearest measured workloads."""

    found: list[VerifiedSchedule] = []
    nearest: Annotated[list[NearestSchedule], Field(description="Empty if schedules were found.")] = []
