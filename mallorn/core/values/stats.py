"""What a round took, and how well models ordered its candidates."""

from typing import Annotated

from pydantic import Field

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
