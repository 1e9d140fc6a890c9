"""The Policy seam: which task is the next round worth most to."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.planner.values import TaskView


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen task, its score and the reasoning behind it, for the decision log."""

    task: TaskView
    score: float
    why: str
    details: dict[str, Any] = field(default_factory=dict)


class Policy(ABC):
    """Chooses among tasks that may be tuned now.

    Contract
    - Pure: the same tasks and seed give the same choice; the order of `tasks` does not matter.
    - Only a task of `tasks` is chosen; `tasks` is never empty.
    - No task is starved: with enough calls each one that stays eligible is chosen again.
    """

    @abstractmethod
    def choose(self, tasks: Sequence[TaskView], seed: int) -> Choice:
        """The task that gets the next round."""
