"""Disturbance of timings by other programs on the device's host, and the time it cost."""

from collections.abc import Iterable
from typing import Annotated, Final, Self

from pydantic import Field

from mallorn.core.host_id import SEPARATE_LOCKS, SHARE_LOCKS
from mallorn.core.values.base import Value

NOTICEABLE: Final = 1.5  # slowdown factor; our own service may cause smaller ones
SOMEBODY: Final = 0.25  # mean number of other programs from which on these are named
FEW: Final = 0.05  # share of a job's times; so few bounds hide no good candidates
HINT: Final = "use --wait-for-quiet to time candidates only while the host is quiet"


class Disturbance(Value):
    """How other programs disturbed some timings; on a quiet host `upper_bounds` and `lost_sec` are 0."""

    candidates: Annotated[int, Field(description="Candidates that ran on a device.")] = 0
    upper_bounds: Annotated[int, Field(description="Candidates with times that are only upper bounds.")] = 0
    valid_sec: Annotated[float, Field(description="Duration of the timings that count.")] = 0.0
    repeated_sec: Annotated[float, Field(description="Duration of disturbed timings that were repeated.")] = (
        0.0
    )
    other_programs: Annotated[
        float, Field(description="Mean number of other programs that needed a core.")
    ] = 0.0
    cores: Annotated[int, Field(description="CPU cores of the device's host.")] = 0
    has_priority: Annotated[
        bool, Field(description="Whether timed kernels run there with raised priority.")
    ] = True
    gpu: Annotated[str, Field(description="What slowed a GPU down; empty: nothing known.")] = ""
    separate_locks: Annotated[
        bool, Field(description="Whether builders may have run, as they share no locks with the device.")
    ] = False

    @classmethod
    def of_all(cls, parts: Iterable[Self]) -> "Disturbance":
        """Combine the disturbances of several sets of timings."""
        parts = list(parts)
        count = sum(part.candidates for part in parts)
        return Disturbance(
            candidates=count,
            upper_bounds=sum(part.upper_bounds for part in parts),
            valid_sec=sum(part.valid_sec for part in parts),
            repeated_sec=sum(part.repeated_sec for part in parts),
            other_programs=sum(part.candidates * part.other_programs for part in parts) / max(1, count),
            cores=max((part.cores for part in parts), default=0),
            has_priority=all(part.has_priority for part in parts),
            gpu=next((part.gpu for part in parts if part.gpu), ""),
            separate_locks=any(part.separate_locks for part in parts),
        )

    @property
    def slowdown_factor(self) -> float:
        """Factor by which disturbances made the timings take longer."""
        return 1.0 + self.repeated_sec / self.valid_sec if self.valid_sec else 1.0

    @property
    def is_uncertain(self) -> bool:
        """Return whether more than 5 % of the times are only upper bounds."""
        return self.upper_bounds > FEW * self.candidates

    @property
    def description(self) -> str:
        """Sentence on what disturbs a job's timings and its effect; empty if negligible."""
        return self._sentence("use", "hold", "are", "takes")

    @property
    def past_description(self) -> str:
        """The text of `description` in the past tense, for a finished job."""
        return self._sentence("used", "held", "were", "took")

    @property
    def hint(self) -> str:
        """Advice how to get undisturbed times; empty if there is none to give."""
        if self.separate_locks:
            return SHARE_LOCKS
        return HINT if self.upper_bounds else ""

    def _sentence(self, use: str, hold: str, are: str, takes: str) -> str:
        if self.slowdown_factor < NOTICEABLE and not self.upper_bounds:
            return ""
        if self.separate_locks:
            return f"{SEPARATE_LOCKS}; {self.upper_bounds} of {self.candidates} times {are} only upper bounds"
        cause = f"other programs {use} {min(self.other_programs, self.cores):.1f} of {self.cores} cores"
        if self.other_programs < SOMEBODY:
            cause = f"a quota, other virtual machines or short work {hold} the processors back"
        certain = f"all {self.candidates} times {are} certain"
        if self.upper_bounds:
            count = self.candidates - self.upper_bounds
            certain = f"{count} of {self.candidates} times {are} certain, the others upper bounds"
        slowdown = f"timing {takes} {self.slowdown_factor:.1f} times as long"
        parts = self.gpu or cause, certain, slowdown if self.slowdown_factor >= NOTICEABLE else ""
        return "; ".join(filter(None, parts))
