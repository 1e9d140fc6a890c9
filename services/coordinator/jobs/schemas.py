"""A job as the API takes and shows it."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mallorn.core.options import JobOptions
from mallorn.core.states import Cause, JobState
from mallorn.core.values.verdict import Level
from services.coordinator.web.texts import check_storable

# Columns of 32 bits; a seed is also TVM's.
MAX_INT: Final = 2**31 - 1
USUAL_TRIALS: Final = 200


class JobIn(BaseModel):
    """Model + target + budget + options."""

    model_config = ConfigDict(extra="forbid")

    model_id: Annotated[str, Field(description="SHA-256 of an uploaded model.")]
    target: Annotated[
        str | dict[str, Any],
        Field(
            description="`local`, canonical JSON (text or object), or a TVM tag such as `nvidia/nvidia-h100`."
        ),
    ]
    trials: Annotated[
        int | None,
        Field(
            ge=0,
            le=MAX_INT,
            description="Candidates to try; 0: what is known already, or sane defaults. Without it "
            f"{USUAL_TRIALS}, or as many as fit where `minutes` are given.",
        ),
    ] = None
    minutes: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Wall time from submit to export.")
    ] = None
    seed: Annotated[int, Field(ge=0, le=MAX_INT)] = 0
    name: Annotated[
        str | None, Field(max_length=200, description="A name for people; default: the model's.")
    ] = None
    priority: Annotated[int, Field(ge=-1000, le=1000, description="Higher goes first.")] = 0
    options: JobOptions = JobOptions()

    @model_validator(mode="before")
    @classmethod
    def _can_be_stored(cls, value: Any) -> Any:
        check_storable(value)
        return value

    @property
    def budget(self) -> int | None:
        """In trials; None: no limit but the minutes."""
        return USUAL_TRIALS if self.trials is None and self.minutes is None else self.trials


class ResumeIn(BaseModel):
    """With what a job goes on."""

    model_config = ConfigDict(extra="forbid")

    trials: Annotated[int, Field(ge=0, le=MAX_INT, description="Added to the budget.")] = 0


class ProgressOut(BaseModel):
    """How far a job is."""

    trials: Annotated[int, Field(description="Candidates handed to a builder so far.")]
    in_flight: Annotated[int, Field(description="Candidates of open rounds that have no outcome yet.")]
    failures: Annotated[dict[str, int], Field(description="Failed candidates by outcome.")]
    tasks: int
    tasks_measured: Annotated[int, Field(description="Tasks with a valid time.")]
    estimated_us: Annotated[
        float | None,
        Field(
            description="Sum over tasks of best latency times weight; null until every task that was given a "
            "round has a time or is given up."
        ),
    ]


class VerdictOut(BaseModel):
    """What a job's figures mean."""

    level: Annotated[
        Level,
        Field(
            description="`good`: as fast as onnxruntime or faster. `fair`: little slower, uncertain, or "
            "compared with TVM's default build alone. `poor`: slower, or failed. `none`: nothing to judge."
        ),
    ]
    summary: Annotated[str, Field(description="The judgement in one line.")]
    next: Annotated[str, Field(description="A command to type next; empty where nothing is left to do.")]


class WarningOut(BaseModel):
    """Something that went wrong without ending the job."""

    source: Annotated[str, Field(description="Who has trouble, as `searcher my_package:Mine`.")]
    message: str
    hint: Annotated[str, Field(description="What to do about it; empty where nothing is known to help.")]
    count: Annotated[int, Field(description="How often it went wrong in the same way.")]


class JobOut(BaseModel):
    """One job."""

    id: str
    owner: Annotated[str, Field(description="The name of the key that submitted it.")]
    name: str
    model_id: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    trials: Annotated[
        int | None,
        Field(description="The budget, as raised by later resumes; null: no limit but the minutes."),
    ]
    minutes: float | None
    seed: int
    priority: int
    options: dict[str, Any]
    state: JobState
    reason: Annotated[str, Field(description="What it waits for, or why it ended, in words.")]
    cause: Annotated[
        Cause,
        Field(
            description="Of the reason, for programs. `owner`: its owner paused it. `no_device`: no device "
            "of its target answers; `not_here`: nor can the service's own machine run one. `other`: the rest."
        ),
    ]
    suggest: Annotated[
        dict[str, Any] | None, Field(description="Of a failed job: options with which it may succeed.")
    ]
    warnings: Annotated[
        list[WarningOut], Field(description="What went wrong without ending the job, the oldest first.")
    ]
    progress: ProgressOut
    graph: Annotated[dict[str, Any] | None, Field(description="The importer's report.")]
    report: Annotated[dict[str, Any] | None, Field(description="The finish's report.")]
    verdict: Annotated[VerdictOut | None, Field(description="How good the result is, and what to do next.")]
    exported: Annotated[bool, Field(description="Whether its schedules can be downloaded.")]
    archived: Annotated[bool, Field(description="Whether it was taken out of the list.")]
    created_at: float
    started_at: float | None
    finished_at: float | None


class TaskOut(BaseModel):
    """One row of MetaSchedule's table."""

    index: int
    name: str
    flops: float
    weight: int
    gflops: float | None
    latency_us: float | None
    weighted_latency_us: float | None
    trials: int
    failures: int
    state: Annotated[str, Field(description="`measuring`, `waiting`, `retired` or `done`.")]
    reason: Annotated[str, Field(description="Why no more rounds are planned, in words.")]
    family: Annotated[str, Field(description="With which tasks it shares a cost model.")]
    family_why: Annotated[str, Field(description="Why it is in that family, in words.")]
    workload: Annotated[str, Field(description="The workload's key.")]
