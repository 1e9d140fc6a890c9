"""A job as the coordinator sends it: state, progress, tasks and reports."""

from typing import Annotated

from pydantic import Field, JsonValue

from mallorn.core.job_options import KeptOptions
from mallorn.core.states import Cause, JobState, TaskState
from mallorn.core.values.base import Value
from mallorn.core.values.decision_log import DeviceUse
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.expected_gain import Outlook
from mallorn.core.values.finish_report import FinishReport
from mallorn.core.values.graph_report import GraphReport
from mallorn.core.values.verdict import Verdict


class JobStep(Value):
    """What a worker does for a job now, and how far it is."""

    name: Annotated[str, Field(description="As text; empty: what the job's state says.")] = ""
    done: int = 0
    total: Annotated[int | None, Field(description="null: it is not counted.")] = None
    disturbance: Annotated[Disturbance | None, Field(description="Of timings; null: negligible.")] = None

    @property
    def text(self) -> str:
        """What is done, how far it is, and what disturbs it, as text."""
        count = "" if self.total is None else f": {self.done} of {self.total}"
        load = (self.disturbance.description, self.disturbance.hint) if self.disturbance else ()
        return "; ".join(filter(None, (f"{self.name}{count}", *load)))


class JobProgress(Value):
    """Progress of a job."""

    step: Annotated[JobStep | None, Field(description="null: what the job's state says.")] = None
    trials: Annotated[int, Field(description="Candidates passed to a builder so far.")] = 0
    open_candidates: Annotated[int, Field(description="Candidates of open rounds without an outcome.")] = 0
    failures: Annotated[dict[str, int], Field(description="Failed candidates by outcome.")] = {}
    unbuilt_candidates: Annotated[
        int, Field(description="Candidates left unbuilt on purpose: they unroll too far.")
    ] = 0
    tasks: int = 0
    tasks_measured: Annotated[int, Field(description="Tasks with a valid time.")] = 0
    estimated_us: Annotated[
        float | None,
        Field(
            description="Sum over tasks of best latency times weight; null until every task with a round "
            "has a time or is given up."
        ),
    ] = None


class JobWarning(Value):
    """A problem that did not end the job."""

    source: Annotated[str, Field(description="What failed, such as `searcher my_package:Mine`.")] = ""
    message: str = ""
    hint: Annotated[str, Field(description="What to do about it; empty if nothing is known to help.")] = ""
    count: Annotated[int, Field(description="How often the same problem occurred.")] = 1


class SuggestedOptions(Value):
    """Options with which a failed job may succeed."""

    input_shapes: dict[str, list[int]] = {}


class JobStatus(Value):
    """A job with its state, progress and reports."""

    id: str
    owner: Annotated[str, Field(description="Owner who submitted it.")] = ""
    name: str = ""
    model_id: str = ""
    target: Annotated[str, Field(description="Canonical JSON.")] = ""
    trials: Annotated[
        int | None,
        Field(
            description="Budget, with the trials of later resumes; null: limited by `minutes` or, without "
            "them, to as many as are worth their time."
        ),
    ] = None
    minutes: float | None = None
    seed: int = 0
    priority: int = 0
    labels: Annotated[
        dict[str, str], Field(description="Values of its labels by key; empty for a label without one.")
    ] = {}
    options: KeptOptions = KeptOptions()
    state: JobState
    waiting_because: Annotated[str, Field(description="As text; empty: it does not wait.")] = ""
    ended_because: Annotated[str, Field(description="As text; empty: it has not ended.")] = ""
    hint: Annotated[str, Field(description="What to type or do if it waits or failed; may be empty.")] = ""
    cause: Annotated[
        Cause,
        Field(
            description="Cause of `waiting_because`. `owner`: its owner paused it. `no_device`: no "
            "device of its target answers; `not_here`: nor can the service's machine run one; `unlike`: "
            "the times of those that answer do not compare with the job's. `other`: any other."
        ),
    ] = Cause.OTHER
    suggest: Annotated[SuggestedOptions | None, Field(description="null: no options are suggested.")] = None
    warnings: Annotated[
        list[JobWarning], Field(description="Problems that did not end the job, the oldest first.")
    ] = []
    progress: JobProgress = JobProgress()
    graph: Annotated[GraphReport | None, Field(description="The importer's report.")] = None
    report: Annotated[FinishReport | None, Field(description="The finish's report.")] = None
    outlook: Annotated[
        Outlook | None, Field(description="Forecast; null until every task that matters has a time.")
    ] = None
    device_use: Annotated[
        DeviceUse | None, Field(description="Of its done rounds; null in lists, and if no device is known.")
    ] = None
    verdict: Annotated[Verdict | None, Field(description="How good the result is, and what to do next.")] = (
        None
    )
    exported: Annotated[bool, Field(description="Whether its schedules can be downloaded.")] = False
    export_deleted_at: Annotated[
        float | None, Field(description="When its exported files were deleted; null: not deleted.")
    ] = None
    archived: Annotated[bool, Field(description="Whether the list of jobs leaves it out.")] = False
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None

    @property
    def explanation(self) -> str:
        """Why it waits or ended, or what is done now, in one line; empty if its state says it."""
        step = self.progress.step
        text = self.waiting_because or self.ended_because or (step.text if step else "")
        return text.strip().partition("\n")[0]

    @property
    def has_auto_budget(self) -> bool:
        """Return whether the job has no budget and runs as long as trials are worth it."""
        return self.trials is None and self.minutes is None

    @property
    def expected_trials(self) -> int | None:
        """The budget in trials or, without one, the expected number; None if unknown."""
        if self.trials is not None or self.outlook is None:
            return self.trials
        return self.progress.trials + self.outlook.trials

    @property
    def finish_report(self) -> FinishReport:
        """Report of the job's last stage; an empty one if there is none yet."""
        return self.report or FinishReport()

    def sent_options(self) -> dict[str, JsonValue]:
        """Return the options that the coordinator sent, as JSON."""
        return self.options.model_dump(mode="json", exclude_unset=True)

    def median_us(self, engine: str) -> float | None:
        """Return the model's median latency in an engine; None if it was not timed."""
        timing = self.finish_report.latency_us.get(engine)
        return None if timing is None else timing.median


class TaskStatus(Value):
    """A task of a job, with the columns of MetaSchedule's table."""

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
            description="Best time on this target in imported logs of stock MetaSchedule, whose host is "
            "not known; null: none."
        ),
    ] = None
    trials: int = 0
    failures: int = 0
    state: TaskState
    reason: Annotated[str, Field(description="Why no more rounds are planned, as text.")] = ""
    family: Annotated[str, Field(description="Family of tasks that share a cost model.")] = ""
    family_why: Annotated[str, Field(description="Why it is in that family, as text.")] = ""
    workload: Annotated[str, Field(description="The workload's key.")] = ""
