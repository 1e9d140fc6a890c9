"""Times a loaded library until its stopping rule wants no more; devices' clients and batches use it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mallorn.workers.measure.stopping.incremental_timing import CandidateTimes, TimeSlices
from mallorn.workers.measure.stopping.stopping_rule import StoppingRule, time_until_rule_stops

if TYPE_CHECKING:  # batches take this module along, without pydantic
    from mallorn.core.job_options import EvaluatorOptions

#: Duration of the rough timing before the actual one, which takes twenty times as long.
ROUGH_MS: Final = 5
ENTRY: Final = "main"  # the function of a library that is timed


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
