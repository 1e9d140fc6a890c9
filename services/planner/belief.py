"""The Belief interface: forecasts what the next round of a task will find."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from mallorn.services.planner.planner_values import TaskView


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a task's next round; latencies are those of the round's best candidate."""

    expected_us: float  # the median
    low_us: float  # low_us to high_us holds the round's best with 80 % probability
    high_us: float
    gain_us: float  # expected drop of the task's best latency, never negative
    gain_sd_us: float  # how uncertain that drop is
    gain_probability: float  # the probability of a drop larger than measuring noise


class Belief(ABC):
    """Forecasts the next round of a task from its known rounds.

    Contract
    - Pure: equal tasks, sizes and seeds give equal forecasts, and the order of `tasks` does not matter.
    - Any number of known rounds is allowed, also none; tasks of a family inform each other.
    - `low_us <= expected_us <= high_us`, all positive and finite; `gain_us >= 0`.
    """

    @abstractmethod
    def forecast(self, tasks: Sequence[TaskView], size: int) -> list[Forecast]:
        """Return the forecast of each task's next round, for rounds of `size` candidates."""
