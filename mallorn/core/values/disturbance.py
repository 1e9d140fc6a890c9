"""What others had of a device's processors while it timed, and what that cost."""

from collections.abc import Iterable
from typing import Annotated, Final, Self

from pydantic import Field

from mallorn.core.host_id import SEPARATE_LOCKS, SHARE_LOCKS
from mallorn.core.values.base import Value

NOTICEABLE: Final = 1.5  # times slower: our own service takes a processor now and then
SOMEBODY: Final = 0.25  # programs
WAIT: Final = "--wait-for-quiet times in quiet moments alone"
RAISE: Final = "a device that may raise its priority (CAP_SYS_NICE) goes before them"


class Disturbance(Value):
    """Of some timings together. A quiet host has neither bounds nor lost seconds."""

    timed: Annotated[int, Field(description="Candidates that ran.")] = 0
    bounds: Annotated[int, Field(description="Of them, with times that are only upper bounds.")] = 0
    kept_sec: Annotated[float, Field(description="Of timings that count.")] = 0.0
    lost_sec: Annotated[float, Field(description="Of timings that were disturbed, and taken again.")] = 0.0
    rivals: Annotated[float, Field(description="Other programs that wanted a core, in the mean.")] = 0.0
    cores: Annotated[int, Field(description="That its host has.")] = 0
    raised: Annotated[bool, Field(description="Whether what is timed goes before others there.")] = True
    gpu: Annotated[str, Field(description="What slowed a GPU down; empty: nothing that is known.")] = ""

    separate_locks: Annotated[
        bool,
        Field(description="Whether builders may have run, as they share no locks with the device."),
    ] = False

    @classmethod
    def of_all(cls, parts: Iterable[Self]) -> "Disturbance":
        """Of all together."""
        parts = list(parts)
        timed = sum(part.timed for part in parts)
        return Disturbance(
            timed=timed,
            bounds=sum(part.bounds for part in parts),
            kept_sec=sum(part.kept_sec for part in parts),
            lost_sec=sum(part.lost_sec for part in parts),
            rivals=sum(part.timed * part.rivals for part in parts) / max(1, timed),
            cores=max((part.cores for part in parts), default=0),
            raised=all(part.raised for part in parts),
            gpu=next((part.gpu for part in parts if part.gpu), ""),
            separate_locks=any(part.separate_locks for part in parts),
        )

    @property
    def slower(self) -> float:
        """How many times as long the timings took as undisturbed ones."""
        return 1.0 + self.lost_sec / self.kept_sec if self.kept_sec else 1.0

    @property
    def words(self) -> str:
        """For people; empty where nothing is worth telling."""
        if self.slower < NOTICEABLE and not self.bounds:
            return ""
        if self.separate_locks:
            return f"{SEPARATE_LOCKS}; {self.bounds} of {self.timed} times are only upper bounds"
        who = f"other programs want {min(self.rivals, self.cores):.1f} of {self.cores} cores"
        if self.rivals < SOMEBODY:
            who = "a quota, other virtual machines or short work hold the processors back"
        who = self.gpu or who
        told = [who, f"times are taken in the gaps, {self.slower:.1f} times slower"]
        if self.bounds:
            told.append(f"{self.bounds} of {self.timed} are only upper bounds")
        return "; ".join(told)

    @property
    def hint(self) -> str:
        """What whoever wants better times may do; empty where they are good."""
        if self.separate_locks:
            return SHARE_LOCKS
        return "" if not self.bounds else WAIT if self.raised or self.gpu else f"{RAISE}; {WAIT}"
