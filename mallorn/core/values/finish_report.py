"""Report of a finish: schedules found, latency of the whole model, and steps left out.

Every key may be missing: a finish omits what it could not do, and earlier versions had fewer.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.expected_gain import GapClosed, Outlook, TuningGain


class ModelLatency(Value):
    """How long one run of the whole model takes with one engine, in microseconds."""

    median: float
    low: Annotated[float, Field(description="Lower end of the median's 95 % interval.")]
    high: Annotated[float, Field(description="Upper end of it.")]
    bursts: Annotated[list[float], Field(description="What it is the median of.")] = []


class Conditions(Value):
    """How quiet the host was while candidates were timed, and the whole model."""

    steady: Annotated[bool, Field(description="False: the figures are not certain.")] = True
    note: Annotated[str, Field(description="What disturbed, in a sentence; empty where nothing did.")] = ""
    trials: Annotated[
        Disturbance | None, Field(description="What disturbed the job's candidates; null: not known.")
    ] = None


class Limits(Value):
    """How near the tuned model comes to what the machine computes at most."""

    flop: Annotated[float | None, Field(description="Operations of one run of the model.")] = None
    peak_gflops: Annotated[
        float | None,
        Field(
            description="What its machine computes at most; null: nobody measured it, or the host was busy."
        ),
    ] = None
    peak_share: Annotated[
        float | None, Field(description="Share of it that the tuned model reaches; null: not known.")
    ] = None


class NotDone(Value):
    """A step that the finish left out."""

    step: str = "a step"
    why: str = "for a reason that was not kept"
    hint: Annotated[str, Field(description="What would bring it about; may be empty.")] = ""


class StepSeconds(Value):
    """What a part of a job took."""

    wall: float
    processor: Annotated[float | None, Field(description="Of all its processes; null: not known.")] = None


class Swap(Value):
    """A task whose schedule was exchanged for one that is faster inside the whole model."""

    task: str
    before_us: float
    after_us: float


class BeforeAfter(Value):
    """The whole model's median latency with several sets of schedules, timed in turn."""

    before: Annotated[float, Field(description="With what is fastest alone; without trials, likeliest.")]
    after: Annotated[float | None, Field(description="With the exchanged ones; null: none were.")] = None
    guesses: Annotated[
        float | None,
        Field(
            description="With what a job without trials hands out, the best of three first guesses a task; "
            "null: each task was won by one."
        ),
    ] = None


class InsideTheModel(Value):
    """What deciding close contests inside the whole model brought."""

    tasks: Annotated[list[Swap], Field(description="What was exchanged.")] = []
    latency_us: BeforeAfter | None = None
    taken: Annotated[bool, Field(description="Whether the exchanged schedules are handed out.")] = False
    guessed: Annotated[bool, Field(description="Whether the first guesses are, being the fastest.")] = False
    seconds: float = 0.0

    @property
    def beside_guesses(self) -> tuple[float, float] | None:
        """Latencies of the model with first guesses and as exported; None if not timed."""
        latency = self.latency_us
        if latency is None or latency.guesses is None:
            return None
        exported = latency.guesses if self.guessed else latency.after if self.taken else latency.before
        return latency.guesses, exported or latency.before


class PointTimes(Value):
    """The whole model at one of the sizes of a range that are tuned."""

    sizes: dict[str, int]
    latency_us: Annotated[dict[str, ModelLatency | None], Field(description="By engine.")] = {}
    error: Annotated[
        float | None, Field(description="Largest relative error against onnxruntime; null: not known.")
    ] = None


class BesidePrograms(Value):
    """The whole model's median latency beside so many other programs, in microseconds."""

    programs: int
    alone_us: Annotated[float, Field(description="With what is fastest alone.")]
    loaded_us: Annotated[
        float | None, Field(description="With what is fastest beside others; null: that is the same.")
    ] = None


class Contention(Value):
    """What another version of the schedules, for busy machines, brings."""

    tasks: Annotated[list[Swap], Field(description="What differs, by times beside the most programs.")] = []
    loads: Annotated[list[BesidePrograms], Field(description="Both versions, timed in turn.")] = []
    wins_from: Annotated[
        int | None,
        Field(description="Programs from which on the other version wins, and is exported; null: never."),
    ] = None
    seconds: float = 0.0


class Source(StrEnum):
    """What a schedule rests on that was chosen without measuring."""

    SAME = "same"  # measurements of the same workload
    NEAR = "near"  # measurements of the same loops in other sizes
    LEARNED = "learned"  # a pretrained cost model (base)
    MODELLED = "modelled"  # the analytic cost model that the job chose
    CONSTRUCTED = "constructed"  # only the machine's measured or assumed figures


class Sure(StrEnum):
    """How much one may rely on such a schedule."""

    MEASURED = "measured"  # measured on the job's own kind of device
    LIKELY = "likely"  # derived from measurements of other devices, sizes or networks
    GUESSED = "guessed"  # not based on any measurement


class Answered(Value):
    """The schedule of a task that was chosen without measuring."""

    source: Source
    because: Annotated[str, Field(description="What it rests on, in words.")]
    sure: Sure
    expected_us: Annotated[
        float | None, Field(description="As it was timed before, on this target; null: nobody has.")
    ] = None
    checked: Annotated[
        bool, Field(description="Whether it was built, run, and what it computes is right.")
    ] = False


class FinishReport(Value):
    """What a finish found out."""

    found: Annotated[int | None, Field(description="Workloads of the model that have a schedule.")] = None
    of: Annotated[int | None, Field(description="Workloads that the model has.")] = None
    missing: Annotated[list[str], Field(description="Workloads without a schedule.")] = []
    without_schedule: Annotated[list[str], Field(description="Tasks that no candidate won.")] = []
    tasks_us: Annotated[
        dict[str, float], Field(description="Median latency of each task's schedule, measured again.")
    ] = {}
    without_time: Annotated[
        list[str], Field(description="Tasks whose schedule is exported although no clock saw its kernel.")
    ] = []
    latency_us: Annotated[
        dict[str, ModelLatency | None],
        Field(description="The whole model's by engine: `untuned`, `tuned`, `onnxruntime`."),
    ] = {}
    points: Annotated[
        list[PointTimes],
        Field(description="Of a job for a range of shapes: each of its points; the rest tells of the last."),
    ] = []
    conditions: Annotated[Conditions | None, Field(description="Null: the model was not timed.")] = None
    not_timed: Annotated[str, Field(description="Why the model was not timed; of earlier versions.")] = ""
    inside_the_model: Annotated[
        InsideTheModel | None, Field(description="Null: there was nothing to decide, or no time for it.")
    ] = None
    contention: Annotated[Contention | None, Field(description="Null: it was not asked for.")] = None
    found_by: Annotated[
        dict[str, int], Field(description="Tasks by how their schedules were found: `default`, `mutation`.")
    ] = {}
    answers: Annotated[
        dict[str, Answered],
        Field(description="By task, of a job with the mode `one-shot` or `zero-shot`."),
    ] = {}
    error_vs_untuned: Annotated[
        float | None, Field(description="Largest relative error against TVM's default build.")
    ] = None
    error_vs_onnxruntime: Annotated[
        float | None, Field(description="Largest relative error against onnxruntime.")
    ] = None
    outlook: Annotated[
        Outlook | None, Field(description="What the planner expected when tuning ended; null: not known.")
    ] = None
    tuning_gain: Annotated[
        TuningGain | None,
        Field(description="What trials would win; null: the job had some, or its machine is not measured."),
    ] = None
    gaps: Annotated[
        list[GapClosed], Field(description="A task each; empty: no trials, or its machine is not measured.")
    ] = []
    limits: Annotated[Limits | None, Field(description="Null: the model was not timed.")] = None
    measured_by: Annotated[
        str, Field(description="The measurer; empty in those of earlier versions, which had devices.")
    ] = ""
    trials: Annotated[int | None, Field(description="Spent when the finish ended.")] = None
    outcomes: Annotated[dict[str, int], Field(description="Trials by outcome.")] = {}
    finish_sec: Annotated[float | None, Field(description="How long the finish took.")] = None
    seconds: Annotated[
        dict[str, StepSeconds],
        Field(
            description="Where the time of a job went apart from trials, by step: `import`, `probe`, "
            "`propose`, `decide`, `build`, `check`, `time`, `export`, `compare`, `rest`."
        ),
    ] = {}
    not_done: Annotated[list[NotDone], Field(description="Steps that were left out.")] = []

    @property
    def steady(self) -> bool:
        """Return whether no disturbance of the job's timings is known."""
        return self.conditions is None or self.conditions.steady

    @property
    def note(self) -> str:
        """Sentence that says what disturbed the timings; empty if nothing did."""
        return "" if self.conditions is None else self.conditions.note

    @property
    def peak_share(self) -> float | None:
        """Share of the machine's peak that the model reaches, else that its tasks reach."""
        if self.outlook is not None and self.outlook.limit_us is not None:
            tuned = self.latency_us.get("tuned")
            return self.outlook.reached if tuned is None else min(1.0, self.outlook.limit_us / tuned.median)
        return None if self.limits is None else self.limits.peak_share
