"""The Policy interface, which chooses the task that gets the next round. Also describes the
reasons for a choice in figures and words, for the decision log."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from mallorn.core.values.decision_log import RoundForecast, RoundNotes
from mallorn.services.planner.planner_values import Forecast, TaskView

# A task this many rounds behind the most tuned one goes first, whatever its score.
STARVATION_ROUNDS: Final = 40
SMALLEST_US: Final = 0.01  # smaller times do not help a reader


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
    - Arms exist, and their tasks have distinct indices; the choice is one of these tasks.
    - No task is starved: with enough calls each one that stays eligible is chosen again.
    """

    #: True if tasks without expected gain rest, and jobs may end early; False for baselines
    rests: ClassVar[bool] = True
    #: size of a task's first round, as a share of a standard round
    first_visit: ClassVar[float] = 1.0

    @abstractmethod
    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        """Choose the task of the next round; `tasks` are all tasks of the job."""


def select_lagging_arms(arms: Sequence[Arm]) -> Sequence[Arm]:
    """Return the tasks that lag by over STARVATION_ROUNDS rounds; all if none does."""
    most_rounds = max(arm.task.rounds for arm in arms)
    return [arm for arm in arms if most_rounds - arm.task.rounds > STARVATION_ROUNDS] or arms


def build_round_notes(choice: TaskChoice, forecast: Forecast, policy: str) -> RoundNotes:
    """Return the notes on why a round was planned, with its forecast."""
    notes = {"policy": policy, "score": choice.score, "why": choice.why, "best_us": choice.task.best_us}
    figures = {name: round_significant(getattr(forecast, name)) for name in RoundForecast.model_fields}
    return RoundNotes.model_validate({**notes, "forecast": figures, **choice.figures})


def describe_expected_gain(arm: Arm) -> str:
    """Describe a task's expected gain in words, with the time that its next round takes."""
    task, forecast = arm.task, arm.forecast
    if task.best_us is None:
        return f"expects {_us(forecast.expected_us)} us x {task.weight} in {arm.seconds:.1f} s"
    drop = f"expects {_us(forecast.gain_us)} us off {_us(task.best_us)} us x {task.weight}"
    return f"{drop} in {arm.seconds:.1f} s"


def weighted_us(task: TaskView, forecast: Forecast) -> float:
    """Return a task's latency times its weight; without a result, the expected latency."""
    return task.weight * (forecast.expected_us if task.best_us is None else task.best_us)


def round_significant(value: float) -> float:
    """Round a number to six significant digits."""
    return float(f"{value:.6g}")


def _us(value: float) -> str:
    if value < SMALLEST_US:
        return f"under {SMALLEST_US}"
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
