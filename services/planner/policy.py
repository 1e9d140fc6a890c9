"""The Policy interface: chooses the task that gets the next round."""

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
    """A task that may be tuned now, with the size, cost and forecast of its next round."""

    task: TaskView
    forecast: Forecast
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """The chosen task, its score and the reason, for the decision log."""

    task: TaskView
    score: float
    why: str
    figures: Mapping[str, float] = field(default_factory=dict)  # further figures for the log
    size: int | None = None  # None: the arm's size


class Policy(ABC):
    """Chooses which task is tuned next.

    Contract
    - Pure: the same arms, tasks and seed give the same choice; their order does not matter.
    - Only the task of an arm is chosen; there is at least one, no two with the same index.
    - No task is starved: with enough calls each one that stays eligible is chosen again.
    """

    #: True if tasks without expected gain rest, and jobs may end early; False for baselines
    rests: ClassVar[bool] = True
    #: size of a task's first round, as a share of a standard round
    first_visit: ClassVar[float] = 1.0

    @abstractmethod
    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        """Choose the task of the next round; `tasks` are all tasks of the job."""


def unstarved(arms: Sequence[Arm]) -> Sequence[Arm]:
    """Return the arms more than STARVATION_ROUNDS rounds behind, or all if there are none."""
    most_rounds = max(arm.task.rounds for arm in arms)
    return [arm for arm in arms if most_rounds - arm.task.rounds > STARVATION_ROUNDS] or arms
