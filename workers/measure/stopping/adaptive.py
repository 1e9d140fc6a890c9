"""Stopping rules that end once a candidate's time is known well enough (as in AdaTune)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from mallorn.workers.measure.stopping.slice_precision import BEHIND, next_slice_options
from mallorn.workers.measure.stopping.stopping_rule import StoppingRule

if TYPE_CHECKING:  # batches take this module along, without pydantic
    from mallorn.core.job_options import EvaluatorOptions


class Adaptive(StoppingRule):
    """Times a candidate in slices (short series of runs), until they make up the timing that
    the job asks for, or until the 95 % confidence interval of the mean is narrow and above
    the task's best time. Without a best time, the job's timing options apply unchanged."""

    behind: ClassVar[float | None] = None

    def next_timing(
        self, evaluator: "EvaluatorOptions", run_us: Sequence[float], best_us: float | None = None
    ) -> "EvaluatorOptions | None":
        return next_slice_options(evaluator, run_us, best_us, self.behind)


class Racing(Adaptive):
    """Like `adaptive`, but also stops if the confidence interval, however wide, is well
    above the best time: for a cost model, 10 % error in the time of a hopeless candidate
    does no harm."""

    behind = BEHIND
