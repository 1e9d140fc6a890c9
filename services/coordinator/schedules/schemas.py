"""A schedule as the API shows it."""

from typing import Annotated, Any, Self

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
    def of(cls, found: FoundSchedule, **more: Any) -> Self:
        row = found.schedule
        return cls(
            **more,
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


class ScriptsOut(BaseModel):
    """A schedule in TVMScript, to be read: integers are 64 bits wide where nothing else is said."""

    original: Annotated[str, Field(description="The program that is scheduled.")]
    scheduled: Annotated[str, Field(description="What the schedule makes of it.")]
    trace: Annotated[str, Field(description="The schedule's steps with their decisions, as Python.")]


class WholeScheduleOut(ScheduleOut):
    """A verified schedule with all that it does."""

    trace: Annotated[str, Field(description="The whole trace, as JSON for a tuning record.")]
    run_us: Annotated[list[float], Field(description="The times that its latency is the median of.")]
    scripts: Annotated[
        ScriptsOut | None, Field(description="Null: promoted by a version that kept no scripts.")
    ]
