"""A verified schedule with all that it does."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.core.values.dataset import VerifiedSchedule


class ScheduleScripts(Value):
    """A schedule in TVMScript, to be read: integers are 64 bits wide where nothing else is said."""

    original: Annotated[str, Field(description="The program that is scheduled.")]
    scheduled: Annotated[str, Field(description="What the schedule makes of it.")]
    trace: Annotated[str, Field(description="The schedule's steps with their decisions, as Python.")]


class WholeSchedule(VerifiedSchedule):
    """A verified schedule with all that it does."""

    trace: Annotated[str, Field(description="The whole trace, as JSON for a tuning record.")]
    run_us: Annotated[list[float], Field(description="The times that its latency is the median of.")]
    scripts: Annotated[
        ScheduleScripts | None, Field(description="Null: promoted by a version that kept no scripts.")
    ] = None
