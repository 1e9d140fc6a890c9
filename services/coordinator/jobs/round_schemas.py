"""A round as the API shows it."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from mallorn.core.states import RoundState


class ForecastOut(BaseModel):
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


class RoundOut(BaseModel):
    """One pull of the bandit: why it was made, what was expected of it and what it brought."""

    id: int
    index: Annotated[int, Field(description="Counts a job's rounds in the order they were planned.")]
    task_index: int
    task_name: str
    weight: Annotated[int, Field(description="How often the model calls the task.")]
    size: Annotated[int, Field(description="Candidates it was planned with.")]
    trials: Annotated[int, Field(description="Candidates with an outcome so far.")]
    failures: Annotated[int, Field(description="How many of them failed.")]
    policy: Annotated[str, Field(description="Who chose the task; `first-pass` for its first visit.")]
    score: Annotated[float | None, Field(description="By which it was chosen; compares within a policy.")]
    why: Annotated[str, Field(description="Why this task and why then, in words.")]
    forecast: Annotated[ForecastOut | None, Field(description="Null where the planner noted none.")]
    before_us: Annotated[
        float | None, Field(description="The task's best when the round was planned; null: none was known.")
    ]
    found_us: Annotated[float | None, Field(description="The best of the round's own candidates so far.")]
    gain_us: Annotated[
        float | None,
        Field(description="What it took off the weighted total; null while there was nothing to compare."),
    ]
    in_interval: Annotated[
        bool | None,
        Field(description="Whether the forecast's interval held what a done round found; null: not judged."),
    ]
    searcher: str
    cost_model: Annotated[
        str | None,
        Field(
            description="The trained model that proposed it; `base:` is a pre-trained one. Null: none did."
        ),
    ]
    proposal: Annotated[
        str | None, Field(description="Where a base proposed it: that it did, and which, in words.")
    ]
    cost_model_version: Annotated[int | None, Field(description="Null: searched without a trained model.")]
    state: RoundState
    attempt: int
    worker: str | None
    seconds: Annotated[float | None, Field(description="From its last claim to its end.")]
    reason: Annotated[dict[str, Any], Field(description="All that the planner noted, as it noted it.")]
    error: str
    stats: dict[str, Any] | None
    created_at: float
    started_at: float | None
    finished_at: float | None
