"""The StoppingRule interface: it decides when a candidate has been timed long enough."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.registry import resolve
from mallorn.workers.measure.stopping.incremental_timing import CandidateTimes, TimeSlices

if TYPE_CHECKING:  # batches take this module along, without pydantic
    from mallorn.core.job_options import EvaluatorOptions


#: Duration of the rough timing before the actual one, which takes twenty times as long.
ROUGH_MS: Final = 5
ENTRY: Final = "main"  # the function of a library that is timed


class StoppingRule(ABC):
    """Decides, from the run times of one candidate so far, whether and how to take more of them.

    Contract
    - `next_timing` is a pure function of its arguments and returns None after finitely many timings.
    - If there are no run times yet, it does not return None.
    - `best_us` is the task's fastest time in the same measuring context, if the round knows it.
    - A candidate that may be faster than `best_us`, or any if it is None, is timed for at least as
      long and with at least as many runs as the evaluator asks for: rules save on slower candidates.
    - Except for rounding in one timing, a rule never asks for more than the evaluator does.
    """

    @abstractmethod
    def next_timing(
        self, evaluator: "EvaluatorOptions", run_us: Sequence[float], best_us: float | None = None
    ) -> "EvaluatorOptions | None":
        """Return the options of the next timing; None if the run times suffice."""


def time_until_rule_stops(
    rule: StoppingRule,
    evaluator: "EvaluatorOptions",
    time_once: Callable[["EvaluatorOptions"], Sequence[float]],
    best_us: float | None = None,
) -> list[float]:
    """Time a candidate until the rule wants no more; return its times in microseconds."""
    run_us: list[float] = []
    while (timing := rule.next_timing(evaluator, run_us, best_us)) is not None:
        run_us.extend(time_once(timing))
    return run_us


class Fixed(StoppingRule):
    """Takes one timing, exactly as the job asks for it, like MetaSchedule itself."""

    def next_timing(
        self, evaluator: "EvaluatorOptions", run_us: Sequence[float], best_us: float | None = None
    ) -> "EvaluatorOptions | None":
        return None if run_us else evaluator


class NamedRule(StoppingRule):
    """A registered rule. Errors of the rule, not of the timings, become PluginFailed."""

    def __init__(self, name: str) -> None:
        self._part = ("stopping", name)
        with convert_plugin_errors(self._part):
            self._rule: StoppingRule = resolve(*self._part)()

    def next_timing(
        self, evaluator: "EvaluatorOptions", run_us: Sequence[float], best_us: float | None = None
    ) -> "EvaluatorOptions | None":
        with convert_plugin_errors(self._part):
            return self._rule.next_timing(evaluator, run_us, best_us)


def time_library(
    times: CandidateTimes,
    library: Any,
    device: Any,
    tensors: Sequence[Any],
    rule: StoppingRule,
    evaluator: "EvaluatorOptions",
    best_us: float | None,
    time_slices: TimeSlices,
) -> list[float]:
    """Add the timings of a library on a device of TVM to `times`; return the run times in
    microseconds, only undisturbed ones if these are enough."""
    rough = library.time_evaluator(ENTRY, device, number=1, repeat=1, min_repeat_ms=ROUGH_MS)
    rough_sec = min(rough(*tensors).results)
    time_until_rule_stops(rule, evaluator, lambda t: times.time_once(t, rough_sec, time_slices), best_us)
    return times.run_us
