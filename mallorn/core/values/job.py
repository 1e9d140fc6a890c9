"""A job as the coordinator sends it: state, progress, tasks and reports."""

from typing import Annotated

from pydantic import Field, JsonValue

from mallorn.core.job_options import KeptOptions
from mallorn.core.states import Cause, JobState, TaskState
from mallorn.core.values.base import Value
from mallorn.core.values.expected_gain import Outlook
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.verdict import Verdict


class JobProgress(Value):
    """How far a job is."""

    trials: Annotated[int, Field(description="Candidates handed to a builder so far.")] = 0
    in_flight: Annotated[int, Field(description="Candidates of open rounds that have no outcome yet.")] = 0
    failures: Annotated[dict[str, int], Field(description="Failed candidates by outcome.")] = {}
    left_unbuilt: Annotated[
        int, Field(description="Candidates that were not built by choice: they unroll too far.")
    ] = 0
    tasks: int = 0
    tasks_measured: Annotated[int, Field(description="Tasks with a valid time.")] = 0
    estimated_us: Annotated[
        float | None,
        Field(
            description="Sum over tasks of best latency times weight; null until every task that was given a "
            "round has a time or is given up."
        ),
    ] = None


class JobWarning(Value):
    """Something that went wrong without ending the job."""

    source: Annotated[str, Field(description="Who has trouble, as `searcher my_package:Mine`.")] = ""
    message: str = ""
    hint: Annotated[str, Field(description="What to do about it; empty where nothing is known to help.")] = ""
    count: Annotated[int, Field(description="How often it went wrong in the same way.")] = 1


class SuggestedOptions(Value):
    """Options with which a failed job may succeed."""

    input_shapes: dict[str, list[int]] = {}


class JobStatus(Value):
    """One job."""

    id: str
    owner: Annotated[str, Field(description="The name of the key that submitted it.")] = ""
    name: str = ""
    model_id: str = ""
    target: Annotated[str, Field(description="Canonical JSON.")] = ""
    trials: Annotated[
        int | None,
        Field(
            description="The budget, as raised by later resumes; null: no limit but the minutes, and without "
            "those as many as are worth their seconds."
        ),
    ] = None
    minutes: float | None = None
    seed: int = 0
    priority: int = 0
    options: KeptOptions = KeptOptions()
    state: JobState
    reason: Annotated[str, Field(description="What it waits for, or why it ended, in words.")] = ""
    cause: Annotated[
        Cause,
        Field(
            description="Of the reason, for programs. `owner`: its owner paused it. `no_device`: no device "
            "of its target answers; `not_here`: nor can the service's own machine run one; `unlike`: times "
            "of those that answer do not compare with the job's. `other`: the rest."
        ),
    ] = Cause.OTHER
    suggest: Annotated[SuggestedOptions | None, Field(description="Null unless the job failed so.")] = None
    warnings: Annotated[
        list[JobWarning], Field(description="What went wrong without ending the job, the oldest first.")
    ] = []
    progress: JobProgress = JobProgress()
    graph: Annotated[GraphReport | None, Field(description="The importer's report.")] = None
    report: Annotated[FinishReport | None, Field(description="The finish's report.")] = None
    outlook: Annotated[
        Outlook | None, Field(description="What is to come; null until every task that matters has a time.")
    ] = None
    verdict: Annotated[Verdict | None, Field(description="How good the result is, and what to do next.")] = (
        None
    )
    exported: Annotated[bool, Field(description="Whether its schedules can be downloaded.")] = False
    export_deleted_at: Annotated[
        float | None, Field(description="When its exported files were deleted; null: they were not.")
    ] = None
    archived: Annotated[bool, Field(description="Whether it was taken out of the list.")] = False
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def auto(self) -> bool:
        """Return whether the job has no budget and runs as long as trials are worth it."""
        return self.trials is None and self.minutes is None

    @property
    def expected_trials(self) -> int | None:
        """The job's budget in trials, else the expected number; None if unknown."""
        if self.trials is not None or self.outlook is None:
            return self.trials
        return self.progress.trials + self.outlook.trials

    @property
    def finish_report(self) -> FinishReport:
        """Report of the finish; an empty report if there is none yet."""
        return self.report or FinishReport()

    def chosen(self) -> dict[str, JsonValue]:
        """Return the options that the coordinator sent, as JSON."""
        return self.options.model_dump(mode="json", exclude_unset=True)

    def median_us(self, engine: str) -> float | None:
        """Return the model's median latency in an engine; None if it was not timed."""
        timing = self.finish_report.latency_us.get(engine)
        return None if timing is None else timing.median


class TaskStatus(Value):
    """One row of MetaSchedule's table."""

    index: int
    name: str
    flops: float = 0.0
    weight: Annotated[int, Field(description="How often the model calls it.")] = 1
    gflops: float | None = None
    latency_us: float | None = None
    weighted_latency_us: float | None = None
    stock_us: Annotated[
        float | None,
        Field(
            description="The least time that imported logs of stock MetaSchedule tell of it on this target, "
            "taken on a host that they do not name; null: no log tells of it."
        ),
    ] = None
    trials: int = 0
    failures: int = 0
    state: TaskState
    reason: Annotated[str, Field(description="Why no more rounds are planned, in words.")] = ""
    family: Annotated[str, Field(description="With which tasks it shares a cost model.")] = ""
    family_why: Annotated[str, Field(description="Why it is in that family, in words.")] = ""
    workload: Annotated[str, Field(description="The workload's key.")] = ""
