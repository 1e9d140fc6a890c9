"""Stopping rules that end once a candidate's time is known well enough (like AdaTune)."""

from collections.abc import Sequence

from mallorn.core.job_options import EvaluatorOptions
from workers.measure.stopping.base import StoppingRule
from workers.measure.stopping.slices import BEHIND, FEWEST, TIGHT, is_known_slower, next_slice


class Adaptive(StoppingRule):
    """Takes short slices until the 95 % interval of their mean is tight and above the task's best.

    If there is no best time yet, it takes the evaluator's timing in one piece.
    """

    def __init__(self, tight: float = TIGHT, fewest: int = FEWEST) -> None:
        self.tight = tight
        self.fewest = fewest
        self.behind: float | None = None

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        if best_us is None:
            return None if run_us else evaluator
        if run_us and is_known_slower(run_us, best_us, self.tight, self.fewest, self.behind):
            return None
        return next_slice(evaluator, run_us, _options)


class Racing(Adaptive):
    """Like `adaptive`, but also stops if the lower bound is well above the task's best.

    A cost model needs no precise time of a hopeless candidate: an error of 10 % does no harm.
    """

    def __init__(self, tight: float = TIGHT, fewest: int = FEWEST, behind: float = BEHIND) -> None:
        super().__init__(tight, fewest)
        self.behind = behind


def _options(number: int, repeat: int, min_repeat_ms: int) -> EvaluatorOptions:
    return EvaluatorOptions(number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)
