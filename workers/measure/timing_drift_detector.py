"""Times a kernel again whose time is known: what no counter shows, as of shared caches, shows in it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.core.values.disturbance import Disturbance
from workers.measure.base import MeasureResult
from workers.measure.build_candidates import Builds, Built
from workers.measure.device_runs import DeviceRuns

# The share by which a time drifted: neighbouring timings of one kernel agree better.
DRIFT: Final = 0.06
# What one timing's own means are apart by tells the same.
SURPRISE: Final = 1.15


class TimingDriftDetector:
    """The fastest of the round so far. When its time drifts, and that of the one that was timed last, times
    since the last look are mere bounds: a single kernel may be faster in one process than in the next."""

    def __init__(self, timing: DeviceRuns, builds: Builds) -> None:
        self._timing = timing
        self._builds = builds
        self._since: list[MeasureResult] = []

    def watch(self, results: Iterator[MeasureResult]) -> Iterator[MeasureResult]:
        """The results; those that turn out to be disturbed once more, as such."""
        for result in results:
            yield result
            if result.trial.time_us is not None:
                self._since.append(result)
                run_us = result.trial.run_us
                if max(run_us) > SURPRISE * min(run_us) and self._timing.idle:
                    yield from self._drifted()
        yield from self._drifted()

    def _drifted(self) -> Iterator[MeasureResult]:
        """What was timed since the last look, if two known times are others now."""
        since, self._since = self._since, []
        if not since or (share := self._drift(self._timing.fastest)) <= DRIFT:
            return
        if (share := min(share, self._drift(self._timing.latest))) <= DRIFT:
            return
        for result in since:
            told = (result.disturbance or Disturbance(timed=1)).model_copy(update={"bounds": 1})
            yield replace(result, trial=replace(result.trial, disturbed=share), disturbance=told)

    def _drift(self, known: tuple[Built, float] | None) -> float:
        """The share of the longer time by which it differs from the known one; 0 where nothing tells."""
        if known is None:
            return 0.0
        built, known_us = known
        self._builds.pause()
        try:
            now_us = self._timing.measure_again(built).trial.time_us
        except MallornError:  # the device is lost: whoever needs it next says so
            return 0.0
        finally:
            self._builds.go_on()
        return 0.0 if now_us is None else 1 - min(now_us, known_us) / max(now_us, known_us)
