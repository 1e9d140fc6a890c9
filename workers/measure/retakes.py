"""How many seconds of a round may go into times that are taken again, since others disturbed them."""

import time
from typing import Final

from mallorn.core.options import EvaluatorOptions

# Of the seconds that the round has taken so far: it lasts twice as long at most.
SHARE: Final = 0.5


class Retakes:
    """The budget of one round. A candidate may always be timed once more."""

    def __init__(self, evaluator: EvaluatorOptions, least_sec: float = 0.0) -> None:
        self._least_sec = max(least_sec, evaluator.repeat * evaluator.min_repeat_ms / 1e3)
        self._began_sec = time.monotonic()
        self._lost_sec = 0.0

    def left_sec(self) -> float:
        """What the next candidate may lose."""
        so_far_sec = time.monotonic() - self._began_sec
        return max(self._least_sec, SHARE * so_far_sec - self._lost_sec)

    def lose(self, lost_sec: float) -> None:
        """Count what a candidate lost."""
        self._lost_sec += lost_sec
