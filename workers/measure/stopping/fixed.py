"""One timing, whatever it says."""

from collections.abc import Sequence

from mallorn.core.options import EvaluatorOptions
from workers.measure.stopping.base import StoppingRule


class Fixed(StoppingRule):
    """What stock MetaSchedule does: one timing, exactly as the job asks for it."""

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        return None if run_us else evaluator
