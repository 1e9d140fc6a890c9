"""Decision log of a job: why each round was planned, its forecast and its result."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field

from mallorn.core.states import RoundState
from mallorn.core.values.base import Value
from mallorn.core.values.disturbance import Disturbance


class RoundStats(Value):
    """Durations, cost model and disturbance of a finished round."""

    propose_sec: float = 0.0
    measure_sec: Annotated[float, Field(description="From its proposals to its last result.")] = 0.0
    build_sec: Annotated[float, Field(description="Sum of its candidates' builds.")] = 0.0
    device: Annotated[str, Field(description="The device that it used last; empty: unknown.")] = ""
    device_sec: Annotated[float, Field(description="While the device ran its candidates.")] = 0.0
    build_wait_sec: Annotated[float, Field(description="While it held a device and had nothing built.")] = 0.0
    device_wait_sec: Annotated[float, Field(description="While a built candidate waited for a device.")] = 0.0
    candidates: Annotated[int, Field(description="Built in this attempt.")] = 0
    cost_model: Annotated[str | None, Field(description="Cost model behind its proposals; null: none.")] = (
        None
    )
    disturbance: Annotated[
        Disturbance | None, Field(description="By other programs on its device; null: unknown.")
    ] = None
    own_accuracy: Annotated[
        float | None, Field(description="Share of pairs that its own model ranked correctly; null: too few.")
    ] = None


#: Longer gaps between rounds are pauses of the job, not time in which a device waited for it.
PAUSE_SEC: Final = 10.0


class DeviceUse(Value):
    """Use of devices by a job's rounds, from the first round to the last."""

    seconds: Annotated[float, Field(description="From the first to the last round, without pauses.")]
    devices: int
    device_sec: Annotated[float, Field(description="While devices ran candidates, in all.")]
    build_sec: Annotated[float, Field(description="Sum of the candidates' builds.")]
    build_wait_sec: Annotated[float, Field(description="While a round's device had nothing built to run.")]
    idle_share: Annotated[float, Field(description="Share of the devices' time without a candidate.")]

    @classmethod
    def of_rounds(cls, rounds: Iterable[tuple[RoundStats, float, float]]) -> Self | None:
        """Return devices' use by rounds with start and end; None if none reported any."""
        spans = [(stats, start, end) for stats, start, end in rounds if stats.device_sec]
        if not spans:
            return None
        seconds, last_end = 0.0, -inf
        for _, start, end in sorted(spans, key=lambda span: span[1]):
            gap = start - last_end
            seconds += max(0.0, end - max(start, last_end)) + (gap if 0 < gap <= PAUSE_SEC else 0.0)
            last_end = max(last_end, end)
        devices = len({stats.device for stats, _, _ in spans})
        device_sec = sum(stats.device_sec for stats, _, _ in spans)
        return cls(
            seconds=seconds,
            devices=devices,
            device_sec=device_sec,
            build_sec=sum(stats.build_sec for stats, _, _ in spans),
            build_wait_sec=sum(stats.build_wait_sec for stats, _, _ in spans),
            idle_share=max(0.0, 1 - device_sec / (seconds * devices)) if seconds else 0.0,
        )


class RoundForecast(Value):
    """The forecast for a planned round. Latencies are those of its best candidate."""

    expected_us: Annotated[float, Field(description="Median.")]
    low_us: Annotated[float, Field(description="Lower end of the 80 % interval.")]
    high_us: Annotated[float, Field(description="Upper end of that interval.")]
    gain_us: Annotated[
        float | None, Field(description="Expected drop of the task's best latency, for one call.")
    ] = None
    gain_probability: Annotated[
        float | None, Field(description="Probability of a drop that exceeds measurement noise.")
    ] = None


class SkippedPart(Value):
    """A searcher or cost model that failed, so that the round went on without it."""

    name: str
    reason: str = ""


class RoundNotes(Value):
    """Why the policy chose a round, and which searchers or cost models failed and were skipped."""

    model_config = ConfigDict(extra="allow")

    policy: str = ""
    score: float | None = None
    why: str = ""
    forecast: RoundForecast | None = None
    skipped_parts: list[SkippedPart] = []


class RoundStatus(Value):
    """A round: why it was planned, its forecast and its result."""

    id: int = 0
    index: Annotated[int, Field(description="Position among the job's rounds, in planning order.")]
    task_index: int
    task_name: str = ""
    weight: Annotated[int, Field(description="How often the model calls the task.")] = 1
    size: Annotated[int, Field(description="Planned number of candidates.")] = 0
    trials: Annotated[int, Field(description="Candidates with an outcome so far.")] = 0
    failures: Annotated[int, Field(description="How many of these failed.")] = 0
    policy: Annotated[str, Field(description="Policy that chose it; `first-pass`: a first round.")] = ""
    score: Annotated[float | None, Field(description="The policy's score; comparable within one policy.")] = (
        None
    )
    why: Annotated[str, Field(description="Why the policy chose this task at this time, as text.")] = ""
    forecast: Annotated[RoundForecast | None, Field(description="null: the planner made none.")] = None
    previous_best_us: Annotated[
        float | None, Field(description="Best latency of the workload before the round; null: unknown.")
    ] = None
    best_us: Annotated[float | None, Field(description="Best latency of its own candidates so far.")] = None
    gain_us: Annotated[
        float | None, Field(description="Drop of the job's weighted total; null if `before_us` is null.")
    ] = None
    is_in_interval: Annotated[
        bool | None,
        Field(description="Whether the result of a done round is in the forecast interval; null: unknown."),
    ] = None
    searcher: str = ""
    cost_model: Annotated[
        str | None,
        Field(description="Trained cost model that proposed it; `base:`: a pretrained one; null: none."),
    ] = None
    proposal: Annotated[
        str | None, Field(description="If a base model proposed it: a text that names the base.")
    ] = None
    cost_model_version: Annotated[int | None, Field(description="null: no trained model was used.")] = None
    state: RoundState
    attempt: int = 0
    worker: str | None = None
    seconds: Annotated[float | None, Field(description="From its last claim by a worker to its end.")] = None
    reason: Annotated[RoundNotes, Field(description="All notes of the planner, unchanged.")] = RoundNotes()
    error: str = ""
    stats: RoundStats | None = None
    created_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None


class LoggedRound(RoundStatus):
    """A round with the weighted totals before and after it; null if a task has no time yet."""

    total_before_us: float | None = None
    total_after_us: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """A round that the planner is about to add to a job, with the reason."""

    task_id: int
    index: int
    size: int
    seed: int
    reason: RoundNotes = field(default_factory=RoundNotes)
    searcher: str | None = None  # None: the searcher that the job chose
