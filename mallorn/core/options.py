"""What a job may ask for, as one schema for API, CLI and table."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class EvaluatorOptions(BaseModel):
    """How one timing is taken; names and defaults are MetaSchedule's but for `min_repeat_ms`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: Annotated[int, Field(ge=1, le=1000)] = 3
    repeat: Annotated[int, Field(ge=1, le=100)] = 1
    min_repeat_ms: Annotated[int, Field(ge=0, le=10_000)] = 100


class JobOptions(BaseModel):
    """Every choice has a name from mallorn.core.names and a default that a newcomer should keep."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str = "tuned"
    search: str = "portfolio"
    cost_model: str = "xgboost"
    sampler: str = "topk"
    stopping: str = "racing"
    policy: str = "dynatune"
    families: str = "operator"
    measurer: str = "tvm"
    #: candidates a round; None: 16 to 64, as the planner finds right
    round_size: Annotated[int, Field(ge=1, le=64)] | None = None
    #: the budget of every task alone; None: as much as the job's allows
    task_trials: Annotated[int, Field(ge=1)] | None = None
    #: tune only the tasks whose names match one of these patterns, as conv2d*; the others keep what is known
    only: list[Annotated[str, Field(min_length=1)]] = []
    build_timeout_sec: Annotated[float, Field(gt=0, le=600)] = 30.0
    run_timeout_sec: Annotated[float, Field(gt=0, le=600)] = 10.0
    evaluator: EvaluatorOptions = EvaluatorOptions()
    input_shapes: dict[str, list[Annotated[int, Field(ge=1)]]] = {}

    def timing(self) -> dict[str, Any]:
        """What of the options must be equal for two times to compare: part of the measuring context."""
        return self.evaluator.model_dump() | {"stopping": self.stopping, "cache": "warm"}
