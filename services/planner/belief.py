"""The Belief seam: what will the next round of a task bring?"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from services.planner.planner_values import TaskView


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a task's next round is expected to find. Latencies are those of the round's best candidate."""

    expected_us: float  # the median
    low_us: float  # the ends of the interval that holds the round's best four times in five
    high_us: float
    gain_us: float  # expected drop of the task's best latency, never negative
    gain_sd_us: float  # how uncertain that drop is
    promise: float  # the probability of a drop that re-measuring noise would not explain


class Belief(ABC):
    """Forecasts the next round of a task from its known rounds.

    Contract
    - Pure: equal tasks, sizes and seeds give equal forecasts, and the order of `tasks` does not matter.
    - Any number of points is allowed, including none; siblings of a family inform each other.
    - `low_us <= expected_us <= high_us`, all positive and finite; `gain_us >= 0`.
    """

    @abstractmethod
    def forecast(self, tasks: Sequence[TaskView], size: int) -> list[Forecast]:
        """One forecast per task, in the order of `tasks`, for a round of `size` candidates each."""
