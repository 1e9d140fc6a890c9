"""A tuned model beside the fastest engine that it was timed with, in words that do not oversell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mallorn.core.values.finish_report import ModelLatency
from mallorn.core.values.verdict import Beside, Level

# Medians nearer than this are as fast as one another where their intervals overlap.
ALIKE: Final = 1.2
# From so many times slower on, a result is poor.
LITTLE_SLOWER: Final = 1.2
RIVALS: Final = {"onnxruntime": "onnxruntime", "untuned": "TVM's default build, which is a naive one"}


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster than its rival the tuned model is, and whether the intervals overlap."""

    rival: str
    times: float
    overlap: bool

    @property
    def by_default_build(self) -> bool:
        """Whether no other engine was timed: then to be faster is no more than fair."""
        return self.rival != "onnxruntime"

    @property
    def even(self) -> bool:
        return self.overlap and 1 / ALIKE < self.times < ALIKE

    @property
    def won(self) -> bool:
        return (self.times >= 1 or self.even) and not self.by_default_build

    @property
    def lost(self) -> bool:
        if self.by_default_build:
            return self.times <= 1 or self.even
        return self.times * LITTLE_SLOWER <= 1 and not self.even

    @property
    def level(self) -> Level:
        return Level.POOR if self.lost else Level.GOOD if self.won else Level.FAIR

    @property
    def short(self) -> str:
        """As `1.4 times faster`, for those who know than what."""
        if self.even:
            return "as fast"
        way, times = ("faster", self.times) if self.times >= 1 else ("slower", 1 / self.times)
        if times < 1.1:  # a factor would read as 1.0
            return f"{max(1, round((times - 1) * 100))} % {way}"
        return f"{times:.1f} times {way}" if times < 10 else f"{times:.0f} times {way}"

    @property
    def words(self) -> str:
        """As `1.4 times faster than onnxruntime`."""
        maybe = "probably " if self.overlap and not self.even else ""
        alone = " (onnxruntime was not timed)" if self.by_default_build else ""
        return f"{maybe}{self.short} {'as' if self.even else 'than'} {RIVALS[self.rival]}{alone}"


def raced(latency_us: Mapping[str, ModelLatency | None]) -> Speedup | None:
    """The tuned model against onnxruntime, else against the default build; None without both times."""
    tuned = latency_us.get("tuned")
    rivals = ((name, latency_us.get(name)) for name in RIVALS)
    rival, other = next(((name, timed) for name, timed in rivals if timed), ("", None))
    if tuned is None or other is None:
        return None
    overlap = tuned.low <= other.high and other.low <= tuned.high
    return Speedup(rival, other.median / tuned.median, overlap)


def beside_onnxruntime(latency_us: Mapping[str, ModelLatency | None]) -> Beside | None:
    """How it stands beside onnxruntime; None where that was not timed."""
    race = raced(latency_us)
    return None if race is None or race.by_default_build else Beside(level=race.level, words=race.short)
