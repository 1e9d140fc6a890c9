"""A measurement as the API shows it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from mallorn.core.outcomes import Outcome


class RecordOut(BaseModel):
    """What happened to one candidate."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    job_id: str | None
    round_id: int | None
    slot: int
    kind: str
    workload: Annotated[str, Field(description="The workload's key.")]
    workload_name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    context_id: Annotated[int | None, Field(description="Times compare only inside one context.")]
    sketch: str
    decisions: list[int]
    outcome: Outcome
    latency_us: float | None
    run_us: list[float]
    error: str | None
    device: str | None
    build_ms: float | None
    run_ms: float | None
    predicted: float | None
    origin: str
    created_at: float
