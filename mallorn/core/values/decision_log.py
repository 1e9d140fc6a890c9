"""Decision log of a job: why each round was planned, its forecast and its result."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import ConfigDict, Field

from mallorn.core.states import RoundState
from mallorn.core.values.base import Value
from mallorn.core.values.disturbance import Disturbance


class RoundStats(Value):
    """Figures of a round that was measured to its end."""

    propose_sec: float = 0.0
    measure_sec: float = 0.0
    candidates: Annotated[int, Field(description="Built in this attempt.")] = 0
    cost_model: Annotated[str | None, Field(description="What it was proposed by; null: no model.")] = None
    disturbance: Annotated[
        Disturbance | None, Field(description="What others had of its device; null: not known.")
    ] = None
    rank_own: Annotated[
        float | None, Field(description="Share of pairs that its own model had in order; null: too few.")
    ] = None
    rank_others: Annotated[
        dict[str, float], Field(description="The same of other families' models, by family.")
    ] = {}


class RoundForecast(Value):
    """What the belief expected of a round when it was planned. Latencies are of its best candidate."""

    expected_us: Annotated[float, Field(description="The median.")]
    low_us: Annotated[float, Field(description="Lower end of the interval that holds four in five.")]
    high_us: Annotated[float, Field(description="Upper end of that interval.")]
    gain_us: Annotated[
        float | None, Field(description="Expected drop of the task's best latency, not weighted.")
    ] = None
    promise: Annotated[
        float | None, Field(description="Probability of a drop that re-measuring noise would not explain.")
    ] = None


class LeftOut(Value):
    """A searcher or a cost model that did not work, and that a round went on without."""

    name: str
    why: str = ""


class RoundNotes(Value):
    """All that was noted of a round: by its policy, and by whoever went on without a part of it."""

    model_config = ConfigDict(extra="allow")

    policy: str = ""
    score: float | None = None
    why: str = ""
    forecast: RoundForecast | None = None
    without: list[LeftOut] = []


class RoundStatus(Value):
    """One pull of the bandit: why it was made, what was expected of it and what it brought."""

    id: int = 0
    index: Annotated[int, Field(description="Counts a job's rounds in the order they were planned.")]
    task_index: int
    task_name: str = ""
    weight: Annotated[int, Field(description="How often the model calls the task.")] = 1
    size: Annotated[int, Field(description="Candidates it was planned with.")] = 0
    trials: Annotated[int, Field(description="Candidates with an outcome so far.")] = 0
    failures: Annotated[int, Field(description="How many of them failed.")] = 0
    policy: Annotated[str, Field(description="Who chose the task; `first-pass` for its first visit.")] = ""
    score: Annotated[float | None, Field(description="By which it was chosen; compares within a policy.")] = (
        None
    )
    why: Annotated[str, Field(description="Why this task and why then, in words.")] = ""
    forecast: Annotated[RoundForecast | None, Field(description="Null where the planner noted none.")] = None
    before_us: Annotated[
        float | None, Field(description="The task's best when the round was planned; null: none was known.")
    ] = None
    found_us: Annotated[float | None, Field(description="The best of the round's own candidates so far.")] = (
        None
    )
    gain_us: Annotated[
        float | None,
        Field(description="What it took off the weighted total; null while there was nothing to compare."),
    ] = None
    in_interval: Annotated[
        bool | None,
        Field(description="Whether the forecast's interval held what a done round found; null: not judged."),
    ] = None
    searcher: str = ""
    cost_model: Annotated[
        str | None,
        Field(
            description="The trained model that proposed it; `base:` is a pre-trained one. Null: none did."
        ),
    ] = None
    proposal: Annotated[
        str | None, Field(description="Where a base proposed it: that it did, and which, in words.")
    ] = None
    cost_model_version: Annotated[
        int | None, Field(description="Null: searched without a trained model.")
    ] = None
    state: RoundState
    attempt: int = 0
    worker: str | None = None
    seconds: Annotated[float | None, Field(description="From its last claim to its end.")] = None
    reason: Annotated[RoundNotes, Field(description="All that the planner noted, as it noted it.")] = (
        RoundNotes()
    )
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
    """A round that the planner will open, with the reason."""

    task_id: int
    index: int
    size: int
    seed: int
    reason: RoundNotes = field(default_factory=RoundNotes)
    searcher: str | None = None  # None: the searcher that the job chose
