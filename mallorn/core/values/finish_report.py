"""Report of a job's last stage (finish): schedules found, model latency, steps left out.

Every key may be missing: a finish omits what it could not do; earlier versions had fewer.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.expected_gain import Outlook, TaskGap, TuningGain


class ModelLatency(Value):
    """Latency of one run of the whole model in one engine, in microseconds."""

    median: float
    low: Annotated[float, Field(description="Lower end of the median's 95 % confidence interval.")]
    high: Annotated[float, Field(description="Upper end of that interval.")]
    bursts: Annotated[list[float], Field(description="Measured times; `median` is their median.")] = []


class Conditions(Value):
    """How quiet the host was while candidates and the whole model were timed."""

    steady: Annotated[bool, Field(description="false: the figures are uncertain.")] = True
    note: Annotated[str, Field(description="What disturbed the timing, as a sentence; empty: nothing.")] = ""
    trials: Annotated[
        Disturbance | None, Field(description="Disturbance of the job's candidates; null: unknown.")
    ] = None


class Limits(Value):
    """How close the tuned model comes to the machine's peak."""

    flop: Annotated[float | None, Field(description="Floating-point operations of one run.")] = None
    peak_gflops: Annotated[
        float | None, Field(description="Peak of the machine; null: not measured, or the host was busy.")
    ] = None
    peak_share: Annotated[
        float | None, Field(description="Share of the peak that the tuned model reaches; null: unknown.")
    ] = None


class SkippedStep(Value):
    """A step that the finish skipped."""

    step: str = "a step"
    reason: str = "for a reason that was not kept"
    hint: Annotated[str, Field(description="What would make it possible; may be empty.")] = ""


class StepSeconds(Value):
    """Duration of one step of a job, and the CPU time that it used."""

    wall: float
    processor: Annotated[float | None, Field(description="Of all its processes; null: unknown.")] = None


class Swap(Value):
    """A task whose schedule was replaced by one that is faster inside the whole model."""

    task: str
    before_us: float
    after_us: float


class BeforeAfter(Value):
    """Median latency of the whole model with several sets of schedules, timed in turn."""

    before: Annotated[float, Field(description="With each task's winner; without trials, the likeliest.")]
    after: Annotated[float | None, Field(description="With replaced schedules; null: none were.")] = None
    guesses: Annotated[
        float | None,
        Field(
            description="With the result of a job without trials: the best of three first guesses per "
            "task. null: first guesses won every task."
        ),
    ] = None


class ModelContests(Value):
    """The result of deciding close contests inside the whole model."""

    tasks: Annotated[list[Swap], Field(description="Tasks whose schedules were replaced.")] = []
    latency_us: BeforeAfter | None = None
    uses_replacements: Annotated[bool, Field(description="Whether the replaced schedules are exported.")] = (
        False
    )
    uses_guesses: Annotated[bool, Field(description="Whether the first guesses are exported.")] = False
    seconds: float = 0.0

    @property
    def beside_guesses(self) -> tuple[float, float] | None:
        """Latency with first guesses, and with exported schedules; None if not timed."""
        latency = self.latency_us
        if latency is None or latency.guesses is None:
            return None
        if self.uses_guesses:
            return latency.guesses, latency.guesses
        return latency.guesses, (self.uses_replacements and latency.after) or latency.before


class PointTimes(Value):
    """Latency of the whole model at one of the tuned sizes of a range of shapes."""

    sizes: dict[str, int]
    latency_us: Annotated[dict[str, ModelLatency | None], Field(description="By engine.")] = {}
    error: Annotated[
        float | None, Field(description="Largest relative error against onnxruntime; null: unknown.")
    ] = None


class LoadedLatency(Value):
    """Median latency of the whole model while other programs run, in microseconds."""

    programs: int
    alone_us: Annotated[float, Field(description="With schedules for an idle host.")]
    loaded_us: Annotated[
        float | None, Field(description="With schedules for a busy host; null: they are the same.")
    ] = None


class Contention(Value):
    """The result of looking for a second version of the schedules, for busy hosts."""

    tasks: Annotated[list[Swap], Field(description="Tasks that differ, timed under the highest load.")] = []
    loads: Annotated[list[LoadedLatency], Field(description="Both versions, timed in turn.")] = []
    min_programs: Annotated[
        int | None,
        Field(description="Number of programs from which on that version wins and is exported; null: never."),
    ] = None
    seconds: float = 0.0


class Source(StrEnum):
    """What a schedule is based on that was chosen without measuring."""

    SAME = "same"  # measurements of the same workload
    NEAR = "near"  # measurements of the same loops in other sizes
    LEARNED = "learned"  # a pretrained cost model (base)
    MODELLED = "modelled"  # the analytic cost model that the job chose
    CONSTRUCTED = "constructed"  # only the machine's measured or assumed figures


class Confidence(StrEnum):
    """How reliable a schedule is that was chosen without measuring."""

    MEASURED = "measured"  # measured on the job's own kind of device
    LIKELY = "likely"  # derived from measurements of other devices, sizes or networks
    GUESSED = "guessed"  # not based on any measurement


class UnmeasuredSchedule(Value):
    """The schedule of a task, chosen without measuring."""

    source: Source
    basis: Annotated[str, Field(description="What the choice is based on, as text.")]
    confidence: Confidence
    expected_us: Annotated[
        float | None, Field(description="Latency measured earlier on this target; null: none was.")
    ] = None
    is_verified: Annotated[bool, Field(description="Whether it was built and run with correct results.")] = (
        False
    )


class StoredLibrary(Value):
    """The compiled model: a shared library that the finish checked and stored."""

    digest: Annotated[str, Field(description="SHA-256 of its bytes.")]
    bytes: int
    cpu_features: Annotated[
        list[str], Field(description="Features of the CPU that it needs, as Linux names them.")
    ] = []


class FinishReport(Value):
    """The result of a finish."""

    schedule_count: Annotated[
        int | None, Field(description="Workloads of the model that have a schedule.")
    ] = None
    workload_count: Annotated[int | None, Field(description="Workloads of the model.")] = None
    unscheduled_workloads: Annotated[list[str], Field(description="Workloads without a schedule.")] = []
    tasks_without_winner: Annotated[list[str], Field(description="Tasks for which no candidate won.")] = []
    tasks_us: Annotated[
        dict[str, float], Field(description="Median latency of each task's schedule, measured again.")
    ] = {}
    untimed_tasks: Annotated[
        list[str], Field(description="Tasks whose schedule is exported although its kernel was not timed.")
    ] = []
    latency_us: Annotated[
        dict[str, ModelLatency | None],
        Field(description="Of the whole model, by engine: `untuned`, `tuned`, `onnxruntime`."),
    ] = {}
    whole_file_us: Annotated[
        float | None,
        Field(description="Of a model compiled in part: median latency of its whole file in onnxruntime."),
    ] = None
    points: Annotated[
        list[PointTimes],
        Field(description="For a range of shapes: each tuned size; other fields report on the last."),
    ] = []
    conditions: Annotated[Conditions | None, Field(description="null: the model was not timed.")] = None
    model_contests: Annotated[
        ModelContests | None, Field(description="null: no close contest, or no time or memory to decide it.")
    ] = None
    contention: Annotated[Contention | None, Field(description="null: not requested, or skipped.")] = None
    search_methods: Annotated[
        dict[str, int], Field(description="Number of tasks by search method, such as `default`, `mutation`.")
    ] = {}
    unmeasured_schedules: Annotated[
        dict[str, UnmeasuredSchedule],
        Field(description="By task, of a job with the mode `one-shot` or `zero-shot`."),
    ] = {}
    error_vs_untuned: Annotated[
        float | None, Field(description="Largest relative error against TVM's default build.")
    ] = None
    error_vs_onnxruntime: Annotated[
        float | None, Field(description="Largest relative error against onnxruntime.")
    ] = None
    outlook: Annotated[
        Outlook | None, Field(description="The planner's forecast when tuning ended; null: unknown.")
    ] = None
    tuning_gain: Annotated[
        TuningGain | None,
        Field(description="Expected gain from trials; null: the job had trials, or no measured machine."),
    ] = None
    gaps: Annotated[
        list[TaskGap], Field(description="One per timed task; empty: no trials, or no measured machine.")
    ] = []
    limits: Annotated[Limits | None, Field(description="null: the model was not timed.")] = None
    library: Annotated[
        StoredLibrary | None, Field(description="null: none was stored; `no_library_reason` says why.")
    ] = None
    no_library_reason: Annotated[
        str, Field(description="Why there is no library, as a sentence; empty in earlier versions.")
    ] = ""
    measured_by: Annotated[
        str, Field(description="Name of the measurer; empty in earlier versions, which used devices.")
    ] = ""
    trials: Annotated[int | None, Field(description="Trials made until the finish ended.")] = None
    outcomes: Annotated[dict[str, int], Field(description="Trials by outcome.")] = {}
    finish_sec: Annotated[float | None, Field(description="Duration of the finish.")] = None
    seconds: Annotated[
        dict[str, StepSeconds],
        Field(
            description="Duration of a job's steps, without trials: `import`, `probe`, `propose`, "
            "`decide`, `build`, `check`, `time`, `export`, `compare`, `rest`."
        ),
    ] = {}
    skipped_steps: Annotated[list[SkippedStep], Field(description="Steps that were skipped.")] = []

    @property
    def is_undisturbed(self) -> bool:
        """Return whether nothing is known to have disturbed the job's timings."""
        return self.conditions is None or self.conditions.steady

    @property
    def disturbance_text(self) -> str:
        """Sentence that says what disturbed the timings; empty if nothing did."""
        return "" if self.conditions is None else self.conditions.note

    @property
    def peak_share(self) -> float | None:
        """Share of the machine's peak that the model or, if untimed, its tasks reach."""
        if self.outlook is not None and self.outlook.limit_us is not None:
            timing = self.latency_us.get("tuned")
            if timing is not None:
                return min(1.0, self.outlook.limit_us / timing.median)
            return self.outlook.limit_share
        return None if self.limits is None else self.limits.peak_share
