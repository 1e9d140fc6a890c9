"""A schedule as the API shows it."""

from typing import Annotated, Self

from pydantic import BaseModel, Field

from db.repositories.schedules import FoundSchedule


class ScheduleOut(BaseModel):
    """A verified schedule."""

    id: int
    job_id: str | None
    workload: Annotated[str, Field(description="The workload's key.")]
    workload_name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    context_id: Annotated[int | None, Field(description="Times compare only inside one context.")]
    latency_us: Annotated[float, Field(description="Median, measured again interleaved with its rivals.")]
    low_us: Annotated[float, Field(description="Lower end of the median's confidence interval.")]
    high_us: Annotated[float, Field(description="Upper end of it.")]
    max_error: Annotated[float, Field(description="Largest relative error against the unscheduled program.")]
    created_at: float

    @classmethod
    def of(cls, found: FoundSchedule) -> Self:
        row = found.schedule
        return cls(
            id=row.id,
            job_id=row.job_id,
            workload=found.workload,
            workload_name=found.workload_name,
            target=found.target,
            context_id=row.context_id,
            latency_us=row.latency_us,
            low_us=row.low_us,
            high_us=row.high_us,
            max_error=row.max_error,
            created_at=row.created_at,
        )
