"""Speed of a tuned model relative to onnxruntime, or else TVM's default build, as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from mallorn.core.format_text import percent
from mallorn.core.values.finish_report import FinishReport, ModelLatency
from mallorn.core.values.verdict import Comparison, Level

# Speeds are equal if the whole interval of their ratio is within this factor of 1.
ALIKE: Final = 1.03
# A model that is slower by this factor or more has a poor result.
LITTLE_SLOWER: Final = 1.2
TUNED: Final = "tuned"
RIVALS: Final = {"onnxruntime": "onnxruntime", "untuned": "TVM's default build, which is a naive one"}


@dataclass(frozen=True, slots=True)
class Speedup:
    """Ratio of a tuned model's speed to that of its rival, with the 95 % interval."""

    rival: str
    times: float
    low: float
    high: float
    pairs: int = 0  # alternating bursts that give the ratio; 0: it comes from the medians

    @property
    def is_against_default_build(self) -> bool:
        """Return whether the rival is TVM's default build; beating it is only `fair`."""
        return self.rival != "onnxruntime"

    @property
    def is_equally_fast(self) -> bool:
        return self.low >= 1 / ALIKE and self.high <= ALIKE

    @property
    def is_significant(self) -> bool:
        """Return whether the ratio's interval excludes 1, so that one model is faster."""
        return not self.is_equally_fast and not self.low <= 1 <= self.high

    @property
    def precise(self) -> bool:
        """Return whether the interval resolves 3 %, so that no more pairs are needed."""
        return self.high <= self.low * ALIKE or self.low > ALIKE or self.high < 1 / ALIKE

    @property
    def is_good(self) -> bool:
        return self.low >= 1 / ALIKE and not self.is_against_default_build

    @property
    def is_poor(self) -> bool:
        if self.is_against_default_build:
            return self.times <= 1 or self.high <= ALIKE
        return self.times * LITTLE_SLOWER <= 1

    @property
    def level(self) -> Level:
        return Level.POOR if self.is_poor else Level.GOOD if self.is_good else Level.FAIR

    @property
    def short(self) -> str:
        """Text such as `1.4 times faster` or `0.98 to 1.12 times as fast`, without a name."""
        if self.is_equally_fast:
            return "as fast"
        return format_speed_ratio(self.times) if self.is_significant else f"{self._interval} times as fast"

    @property
    def full_text(self) -> str:
        """Text such as `1.4 times faster than onnxruntime (ratio 1.40, 1.37 to 1.44)`."""
        rival, ratio = RIVALS[self.rival], format_ratio(self.times)
        note = "; onnxruntime was not timed" if self.is_against_default_build else ""
        if self.is_equally_fast or self.is_significant:
            conjunction = "as" if self.is_equally_fast else "than"
            return f"{self.short} {conjunction} {rival} (ratio {ratio}, {self._interval}{note})"
        return f"{ratio} ({self._interval}) times the speed of {rival} (not told apart{note})"

    @property
    def _interval(self) -> str:
        return f"{format_ratio(self.low)} to {format_ratio(self.high)}"


def format_speed_ratio(times: float) -> str:
    """Return a ratio of speeds as `1.4 times faster`, or in percent if it is small."""
    direction, factor = ("faster", times) if times >= 1 else ("slower", 1 / times)
    if factor < 1.1:
        return f"{max(1, round((factor - 1) * 100))} % {direction}"
    return f"{factor:.1f} times {direction}" if factor < 10 else f"{factor:.0f} times {direction}"


def format_ratio(ratio: float) -> str:
    """Return a ratio with two decimals, or with fewer or more if its size suggests that."""
    return f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.1f}"


def compare_with_rival(latency_us: Mapping[str, ModelLatency | None]) -> Speedup | None:
    """Compare the tuned model with onnxruntime, else with TVM's default build.

    Returns None without both times. Alternating bursts are compared in pairs, because a
    slow phase of the host affects both.
    """
    timing = latency_us.get(TUNED)
    name = next((name for name in RIVALS if latency_us.get(name)), "")
    rival = latency_us.get(name)
    if timing is None or rival is None:
        return None
    if len(timing.bursts) == len(rival.bursts) > 1:
        ratios = [rival_us / tuned_us for tuned_us, rival_us in zip(timing.bursts, rival.bursts, strict=True)]
        low, high = median_confidence_interval(ratios)
        return Speedup(name, median(ratios), low, high, len(ratios))
    return Speedup(name, rival.median / timing.median, rival.low / timing.high, rival.high / timing.low)


def compare_whole_file(report: FinishReport) -> str:
    """Say how long onnxruntime runs the file of a model that is compiled in part, and how fast the
    file is if the library replaces that part; empty if either was not timed."""
    ours, theirs = (report.latency_us.get(name) for name in (TUNED, "onnxruntime"))
    if report.whole_file_us is None or ours is None or theirs is None:
        return ""
    outside_us = max(0.0, report.whole_file_us - theirs.median)
    if ours.median > theirs.median:
        return "so the provider leaves the whole file to onnxruntime"
    ratio = format_speed_ratio(report.whole_file_us / (outside_us + ours.median))
    share = percent(outside_us / report.whole_file_us)
    return f"the other nodes take {share} of onnxruntime's time, so the whole file is about {ratio}"


def median_confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the median's 95 % confidence interval; below six values, their whole range."""
    ordered = sorted(values)
    count = len(ordered)
    omitted = max(0, int((count - 1.96 * count**0.5) / 2)) if count >= 6 else 0
    return ordered[omitted], ordered[-1 - omitted]


def compare_with_onnxruntime(latency_us: Mapping[str, ModelLatency | None]) -> Comparison | None:
    """Compare the tuned model with onnxruntime; None if either was not timed."""
    race = compare_with_rival(latency_us)
    if race is None or race.is_against_default_build:
        return None
    return Comparison(level=race.level, text=race.short)
