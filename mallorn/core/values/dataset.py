"""Contents of the dataset, as the coordinator sends them."""

from datetime import date
from typing import Annotated

from pydantic import Field

from mallorn.core.outcomes import Outcome
from mallorn.core.values.base import Value


class UploadedModel(Value):
    """An uploaded network."""

    id: Annotated[str, Field(description="SHA-256 of its bytes.")]
    name: str = ""
    size_bytes: int = 0
    created_at: float = 0.0


class Record(Value):
    """What happened to one candidate."""

    id: int
    job_id: str | None = None
    round_id: int | None = None
    slot: int = 0
    kind: str = ""
    workload: Annotated[str, Field(description="The workload's key.")] = ""
    workload_name: str = ""
    target: Annotated[str, Field(description="Canonical JSON.")] = ""
    context_id: Annotated[int | None, Field(description="Times compare only inside one context.")] = None
    sketch: str = ""
    decisions: list[int] = []
    outcome: Outcome
    latency_us: float | None = None
    bound_us: Annotated[
        float | None, Field(description="In place of its latency, where others had its processors: at most.")
    ] = None
    disturbed: Annotated[
        float | None, Field(description="The share of its times in which they had; null: not known.")
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
    """A schedule that computes what the unscheduled program computes."""

    id: int
    job_id: str | None = None
    workload: Annotated[str, Field(description="The workload's key.")] = ""
    workload_name: str = ""
    target: Annotated[str, Field(description="Canonical JSON.")] = ""
    context_id: Annotated[int | None, Field(description="Times compare only inside one context.")] = None
    latency_us: Annotated[float, Field(description="Median, measured again interleaved with its rivals.")]
    inside_model: Annotated[
        bool, Field(description="Whether it was timed inside a whole model; false: alone, with warm caches.")
    ] = False
    low_us: Annotated[float, Field(description="Lower end of the median's confidence interval.")]
    high_us: Annotated[float, Field(description="Upper end of it.")]
    is_bound: Annotated[
        bool, Field(description="Whether its times are upper bounds: others had the processors meanwhile.")
    ] = False
    max_error: Annotated[float, Field(description="Largest relative error against the unscheduled program.")]
    created_at: float = 0.0


class NamedCount(Value):
    """How many measurements there are of something."""

    name: str
    count: int


class DayCount(Value):
    """What a day added."""

    day: Annotated[date, Field(description="UTC.")]
    count: int
    total: Annotated[int, Field(description="Up to the end of the day.")]


class DatasetStats(Value):
    """Counts of measurements, most of a kind first."""

    measurements: int = 0
    imported: Annotated[int, Field(description="Of them, from other datasets.")] = 0
    workloads: Annotated[int, Field(description="That were measured.")] = 0
    targets: list[NamedCount] = []
    operators: list[NamedCount] = []
    models: Annotated[list[NamedCount], Field(description="By the networks whose jobs measured.")] = []
    outcomes: list[NamedCount] = []
    days: list[DayCount] = []
    foreign: Annotated[list[NamedCount], Field(description="Records of other tuners, by format.")] = []


class ScheduleScripts(Value):
    """A schedule in TVMScript, to be read: integers are 64 bits wide where nothing else is said."""

    original: Annotated[str, Field(description="The program that is scheduled.")]
    scheduled: Annotated[str, Field(description="What the schedule makes of it.")]
    trace: Annotated[str, Field(description="The schedule's steps with their decisions, as Python.")]


class WholeSchedule(VerifiedSchedule):
    """A verified schedule with all that it does."""

    trace: Annotated[str, Field(description="The whole trace, as JSON for a tuning record.")]
    run_us: Annotated[list[float], Field(description="The times that its latency is the median of.")]
    scripts: Annotated[
        ScheduleScripts | None, Field(description="Null: promoted by a version that kept no scripts.")
    ] = None
