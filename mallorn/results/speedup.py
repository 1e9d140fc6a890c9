"""A tuned model compared with the fastest engine that it was timed with, in words that do not oversell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from mallorn.core.values.finish_report import ModelLatency
from mallorn.core.values.verdict import Beside, Level

# Speeds are alike where the whole interval of their ratio lies within this factor of 1.
ALIKE: Final = 1.03
# From so many times slower on, a result is poor.
LITTLE_SLOWER: Final = 1.2
TUNED: Final = "tuned"
RIVALS: Final = {"onnxruntime": "onnxruntime", "untuned": "TVM's default build, which is a naive one"}


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times as fast as its rival the tuned model is, with the 95 % interval of that ratio."""

    rival: str
    times: float
    low: float
    high: float
    pairs: int = 0  # bursts of both engines in turn that the ratio comes from; 0: from their medians

    @property
    def by_default_build(self) -> bool:
        """Whether no other engine was timed: then to be faster is no more than fair."""
        return self.rival != "onnxruntime"

    @property
    def even(self) -> bool:
        return self.low >= 1 / ALIKE and self.high <= ALIKE

    @property
    def differs(self) -> bool:
        """Return whether the interval of the ratio excludes 1, so that one of the two is faster."""
        return not self.even and not self.low <= 1 <= self.high

    @property
    def precise(self) -> bool:
        """Return whether the interval tells a difference of 3 %, so that no more pairs are needed."""
        return self.high <= self.low * ALIKE or self.low > ALIKE or self.high < 1 / ALIKE

    @property
    def won(self) -> bool:
        return self.low >= 1 / ALIKE and not self.by_default_build

    @property
    def lost(self) -> bool:
        if self.by_default_build:
            return self.times <= 1 or self.high <= ALIKE
        return self.times * LITTLE_SLOWER <= 1

    @property
    def level(self) -> Level:
        return Level.POOR if self.lost else Level.GOOD if self.won else Level.FAIR

    @property
    def short(self) -> str:
        """Return `1.4 times faster`, `as fast` or `0.98 to 1.12 times as fast`, without the rival's name."""
        if self.even:
            return "as fast"
        return faster_or_slower(self.times) if self.differs else f"{self._interval} times as fast"

    @property
    def words(self) -> str:
        """Return a text such as `1.4 times faster than onnxruntime (ratio 1.40, 1.37 to 1.44)`."""
        rival, ratio = RIVALS[self.rival], figure(self.times)
        alone = "; onnxruntime was not timed" if self.by_default_build else ""
        if self.even or self.differs:
            how = "as" if self.even else "than"
            return f"{self.short} {how} {rival} (ratio {ratio}, {self._interval}{alone})"
        return f"{ratio} ({self._interval}) times the speed of {rival} (not told apart{alone})"

    @property
    def _interval(self) -> str:
        return f"{figure(self.low)} to {figure(self.high)}"


def faster_or_slower(times: float) -> str:
    """Return a ratio of speeds as `1.4 times faster` or `7 % slower`; a small one never as 1.0 times."""
    way, factor = ("faster", times) if times >= 1 else ("slower", 1 / times)
    if factor < 1.1:
        return f"{max(1, round((factor - 1) * 100))} % {way}"
    return f"{factor:.1f} times {way}" if factor < 10 else f"{factor:.0f} times {way}"


def figure(ratio: float) -> str:
    """Return a ratio with two decimals, or as many as its size makes sensible."""
    return f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def raced(latency_us: Mapping[str, ModelLatency | None]) -> Speedup | None:
    """Compare the tuned model with onnxruntime, else with the default build; None without both times.

    Bursts of two engines that took turns are compared pair by pair: a slow spell of the host hits both.
    """
    tuned = latency_us.get(TUNED)
    rivals = ((name, latency_us.get(name)) for name in RIVALS)
    rival, other = next(((name, timed) for name, timed in rivals if timed), ("", None))
    if tuned is None or other is None:
        return None
    if len(tuned.bursts) == len(other.bursts) > 1:
        ratios = [theirs / ours for ours, theirs in zip(tuned.bursts, other.bursts, strict=True)]
        return Speedup(rival, median(ratios), *interval(ratios), len(ratios))
    return Speedup(rival, other.median / tuned.median, other.low / tuned.high, other.high / tuned.low)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % interval of the median by the order of the values; of fewer than six, their range."""
    ordered = sorted(values)
    count = len(ordered)
    cut = max(0, int((count - 1.96 * count**0.5) / 2)) if count >= 6 else 0
    return ordered[cut], ordered[-1 - cut]


def beside_onnxruntime(latency_us: Mapping[str, ModelLatency | None]) -> Beside | None:
    """How it stands beside onnxruntime; None where that was not timed."""
    race = raced(latency_us)
    return None if race is None or race.by_default_build else Beside(level=race.level, words=race.short)
