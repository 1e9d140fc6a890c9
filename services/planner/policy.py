"""The Policy seam: which task is the next round worth most to."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from services.planner.belief import Forecast
from services.planner.planner_values import TaskView

# A task this many rounds behind the most tuned one goes first, whatever its score.
STARVATION_ROUNDS: Final = 40


@dataclass(frozen=True, slots=True)
class Arm:
    """A task that may be tuned now, with the cost and the forecast of its next round."""

    task: TaskView
    forecast: Forecast
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The chosen task, its score and the reasoning behind it, for the decision log."""

    task: TaskView
    score: float
    why: str
    figures: Mapping[str, float] = field(default_factory=dict)  # that the log shows beside it
    size: int | None = None  # None: the arm's size


class Policy(ABC):
    """Chooses which task is tuned next.

    Contract
    - Pure: the same arms, tasks and seed give the same choice; their order does not matter.
    - Only the task of an arm is chosen; there is at least one, no two with the same index.
    - No task is starved: with enough calls each one that stays eligible is chosen again.
    """

    #: True if tasks rest, and the job may end early, when no gain is expected; baselines spend their budget
    rests: ClassVar[bool] = True
    #: the size of a first visit, as a part of a standard round
    first_visit: ClassVar[float] = 1.0

    @abstractmethod
    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        """The task that gets the next round; `tasks` are all tasks of the job, eligible or not."""


def unstarved(arms: Sequence[Arm]) -> Sequence[Arm]:
    """The arms that are far behind, if any; else all."""
    newest = max(arm.task.rounds for arm in arms)
    return [arm for arm in arms if newest - arm.task.rounds > STARVATION_ROUNDS] or arms
