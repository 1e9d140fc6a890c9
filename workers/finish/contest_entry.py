"""What became of a contest's candidates, pass by pass, and which devices told otherwise than the others."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Final

from db.repositories.base import ERROR_CHARS
from mallorn.core.outcomes import Outcome
from mallorn.core.values.trial import Trial
from workers.finish.numeric_checker import NumericCheck
from workers.measure.base import MeasureInput, MeasureResult

#: Devices of one context differ by less, also where one of them is busy.
OTHERWISE: Final = 2.0


@dataclass(frozen=True, slots=True)
class ContestEntry:
    """A candidate with all that became of it. Of three devices or more, fewer than half are overruled."""

    slot: MeasureInput
    results: tuple[MeasureResult, ...]

    @property
    def failure(self) -> Trial | None:
        """The pass that went wrong: what fails now and then is not stable enough to win."""
        failed = [each.trial for each in self.results if each.trial.outcome.failed]
        devices = {each.endpoint.name for each in self.results if each.endpoint is not None}
        overruled = (len(devices) - 1) // 2
        return failed[0] if len(failed) > overruled else None

    def trial(self, verdict: NumericCheck | None) -> Trial:
        """All passes as one; a candidate that failed in one of them, or its check, has no time."""
        first = self.results[0].trial
        passed = Trial(first.candidate, Outcome.OK, origin="finish", build_ms=first.build_ms)
        if self.failure is not None:
            return replace(passed, outcome=self.failure.outcome, error=self.failure.error[-ERROR_CHARS:])
        if verdict is not None and not verdict.ok:
            return replace(passed, outcome=verdict.outcome, error=verdict.words[-ERROR_CHARS:])
        shares = [each.trial.disturbed for each in self._counting if each.trial.disturbed is not None]
        return replace(passed, run_us=self.times, disturbed=fmean(shares) if shares else None)

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(us for each in self._counting for us in each.trial.run_us)

    @property
    def _counting(self) -> tuple[MeasureResult, ...]:
        """Passes that nothing disturbed, where there are any: all others are mere bounds."""
        quiet = tuple(each for each in self.results if not each.trial.is_bound)
        return quiet if any(each.trial.run_us for each in quiet) else self.results

    def latency(self) -> float:
        return median(self.times)

    def rank(self) -> tuple[int, float]:
        """More passes first, because only rivals close to the fastest stay in the race; then the latency."""
        return -len(self.results), self.latency()


def odd_devices(entries: Sequence[ContestEntry]) -> list[str]:
    """Of three devices or more, those that tell otherwise than the others of most candidates."""
    told: dict[str, list[bool]] = defaultdict(list)
    for entry in entries:
        by_device = {each.endpoint.name: each.trial for each in entry.results if each.endpoint is not None}
        if len(by_device) < 3 or entry.failure is not None:
            continue
        least_us, most_us = entry.latency() / OTHERWISE, entry.latency() * OTHERWISE
        for name, trial in by_device.items():
            if trial.is_bound:  # it tells of others at the device, not of the device
                continue
            told[name].append(trial.time_us is None or not least_us <= trial.time_us <= most_us)
    return sorted(name for name, odd in told.items() if 2 * sum(odd) > len(odd))
