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
    """How other programs disturbed some timings; on a quiet host `bounds` and `lost_sec` are 0."""

    timed: Annotated[int, Field(description="Candidates that ran on a device.")] = 0
    bounds: Annotated[int, Field(description="Candidates with times that are only upper bounds.")] = 0
    kept_sec: Annotated[float, Field(description="Duration of the timings that count.")] = 0.0
    lost_sec: Annotated[float, Field(description="Duration of disturbed timings that were repeated.")] = 0.0
    rivals: Annotated[float, Field(description="Mean number of other programs that needed a core.")] = 0.0
    cores: Annotated[int, Field(description="CPU cores of the device's host.")] = 0
    raised: Annotated[bool, Field(description="Whether timed kernels run there with raised priority.")] = True
    gpu: Annotated[str, Field(description="What slowed a GPU down; empty: nothing known.")] = ""
    separate_locks: Annotated[
        bool,
        Field(description="Whether builders may have run, as they share no locks with the device."),
    ] = False

    @classmethod
    def of_all(cls, parts: Iterable[Self]) -> "Disturbance":
        """Combine the disturbances of several sets of timings."""
        parts = list(parts)
        count = sum(part.timed for part in parts)
        return Disturbance(
            timed=count,
            bounds=sum(part.bounds for part in parts),
            kept_sec=sum(part.kept_sec for part in parts),
            lost_sec=sum(part.lost_sec for part in parts),
            rivals=sum(part.timed * part.rivals for part in parts) / max(1, count),
            cores=max((part.cores for part in parts), default=0),
            raised=all(part.raised for part in parts),
            gpu=next((part.gpu for part in parts if part.gpu), ""),
            separate_locks=any(part.separate_locks for part in parts),
        )

    @property
    def slower(self) -> float:
        """Factor by which disturbances made the timings take longer."""
        return 1.0 + self.lost_sec / self.kept_sec if self.kept_sec else 1.0

    @property
    def is_uncertain(self) -> bool:
        """Return whether more than 5 % of the times are only upper bounds."""
        return self.bounds > FEW * self.timed

    @property
    def words(self) -> str:
        """Sentence on what disturbs a job's timings and its effect; empty if negligible."""
        return self._sentence("use", "hold", "are", "takes")

    @property
    def past_words(self) -> str:
        """The text of `words` in the past tense, for a finished job."""
        return self._sentence("used", "held", "were", "took")

    @property
    def hint(self) -> str:
        """Advice how to get undisturbed times; empty if there is none to give."""
        if self.separate_locks:
            return SHARE_LOCKS
        return HINT if self.bounds else ""

    def _sentence(self, use: str, hold: str, are: str, takes: str) -> str:
        if self.slower < NOTICEABLE and not self.bounds:
            return ""
        if self.separate_locks:
            return f"{SEPARATE_LOCKS}; {self.bounds} of {self.timed} times {are} only upper bounds"
        cause = f"other programs {use} {min(self.rivals, self.cores):.1f} of {self.cores} cores"
        if self.rivals < SOMEBODY:
            cause = f"a quota, other virtual machines or short work {hold} the processors back"
        certain = f"all {self.timed} times {are} certain"
        if self.bounds:
            certain = (
                f"{self.timed - self.bounds} of {self.timed} times {are} certain, the others upper bounds"
            )
        slowdown = f"timing {takes} {self.slower:.1f} times as long" if self.slower >= NOTICEABLE else ""
        return "; ".join(filter(None, [self.gpu or cause, certain, slowdown]))
