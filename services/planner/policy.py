"""The Policy interface, which chooses the task that gets the next round, and the policies.

Also describes the reasons for a choice in figures and words, for the decision log.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import ClassVar, Final

from mallorn.core.values.decision_log import RoundForecast, RoundNotes
from mallorn.services.planner.planner_values import Forecast, TaskView

# A task this many rounds behind the most tuned one goes first, whatever its score.
STARVATION_ROUNDS: Final = 40
# Weight of the gain's standard deviation in the bound.
OPTIMISM: Final = 0.1
BACKWARD_SHARE: Final = 0.2
WINDOW_ROUNDS: Final = 3
# The assumed rate of a task without a valid result.
ASSUMED_GFLOPS: Final = 1.0
FORESEE_SHARE: Final = 4  # a foresee round is this part of a full one
SMALLEST_FORESEE: Final = 4


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


SMALLEST_US: Final = 0.01  # smaller times do not help a reader


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


class RoundRobin(Policy):
    """Baseline that ignores results: chooses the task with the fewest rounds."""

    rests = False

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        task = min((arm.task for arm in arms), key=lambda task: (task.rounds, task.index))
        return TaskChoice(task, 0.0, f"fewest rounds so far: {task.rounds}")


class RandomChoice(Policy):
    """Baseline that ignores results: chooses a task at random, with equal probabilities."""

    rests = False

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        by_index = sorted((arm.task for arm in arms), key=lambda task: task.index)
        task = Random(seed).choice(by_index)  # noqa: S311  (a choice, not a secret)
        return TaskChoice(task, 0.0, f"drawn at random among {len(arms)} tasks")


class DynaTune(Policy):
    """Chooses the round that lowers weighted latency most per second of device time.

    The released code rewards raw GFLOPS, which picks the fastest kernel for ever. Here a
    task's score is the drop of the weighted latency that the round is expected to bring,
    plus a bonus for uncertainty, per second of the round, as a share of the job's total
    weighted latency.
    """

    # A first round begins with default schedules: a few show how fast the task is.
    first_visit = 0.5

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        total = sum(sorted(weighted_us(arm.task, arm.forecast) for arm in arms))
        arm = max(select_lagging_arms(arms), key=lambda arm: (_reward(arm), -arm.task.index))
        return TaskChoice(arm.task, _reward(arm) / total, describe_expected_gain(arm))


def _reward(arm: Arm) -> float:
    gain = arm.forecast.gain_us + OPTIMISM * arm.forecast.gain_sd_us
    return arm.task.weight * gain / arm.seconds


class Gradient(Policy):
    """Ansor's gradient: averages a task's recent gain and an optimistic bound on its next gain.

    It differs from the released code in three ways. A task without a valid result gets an
    assumed rate instead of minus infinity for ever. The task's index breaks ties instead of
    a random choice that includes retired tasks. Results of earlier jobs count as one round.
    """

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        task = steepest([arm.task for arm in select_lagging_arms(arms)])
        return TaskChoice(
            task, gradient_us(task), describe_gradient(task), {"gradient_us": round(gradient_us(task), 3)}
        )


def steepest(tasks: Sequence[TaskView]) -> TaskView:
    """Return the task with the largest gradient; the lowest index wins ties."""
    return max(tasks, key=lambda task: (gradient_us(task), -task.index))


def gradient_us(task: TaskView) -> float:
    """Return the expected drop of weighted latency (us) from one more round of a task."""
    latency_us = task.best_us
    if latency_us is None:
        latency_us = max(task.flops, 1.0) / (ASSUMED_GFLOPS * 1e3) / (1 + task.failed_rounds)
    optimistic = latency_us / max(1, len(task.curve_us))
    return task.weight * (BACKWARD_SHARE * _recent_gain(task) + (1 - BACKWARD_SHARE) * optimistic)


def _recent_gain(task: TaskView) -> float:
    if len(task.curve_us) <= WINDOW_ROUNDS:
        return 0.0
    return (task.curve_us[-1 - WINDOW_ROUNDS] - task.curve_us[-1]) / WINDOW_ROUNDS


def describe_gradient(task: TaskView) -> str:
    """Describe a task's latency and recent gain, from which its gradient is computed."""
    if task.best_us is None:
        return f"no valid result yet after {task.trials} trials"
    return (
        f"{task.weight} x {task.best_us:.1f} us after {task.trials} trials, "
        f"{_recent_gain(task):.2f} us gained per round lately"
    )


class FamilySeer(Policy):
    """Ansor's gradient, plus a small "foresee" round for another task of a family.

    A family's shared cost model is freshest just after one of its tasks was measured. A
    family is due a small round as long as it had fewer small rounds than full ones; first
    rounds of tasks do not count. They count as rounds here; the released code adds them to
    a history whose length it does not advance.
    """

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        sizes = {arm.task.index: arm.size for arm in arms}
        due = _due_siblings(tasks, max(sizes.values()))
        siblings = [task for family in due for task in family if task.index in sizes]
        if not siblings:
            task = steepest([arm.task for arm in select_lagging_arms(arms)])
            return TaskChoice(task, gradient_us(task), describe_gradient(task))
        task = steepest(siblings)
        words = f"foresee round with its family's freshly trained model; {describe_gradient(task)}"
        return TaskChoice(task, gradient_us(task), words, size=small_round_size(sizes[task.index]))


def small_round_size(size: int) -> int:
    """Return the size of a small (foresee) round: a quarter of a full one, or a minimum."""
    return min(size, max(SMALLEST_FORESEE, size // FORESEE_SHARE))


def _due_siblings(tasks: Sequence[TaskView], size: int) -> Iterator[list[TaskView]]:
    """Yield, for each family that is due a small round, all but its last measured task."""
    families: dict[str, list[TaskView]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.index):
        families[task.family].append(task)
    small_size = small_round_size(size)
    for members in families.values():
        full = sum(trials > small_size for task in members for trials in _sizes(task))
        small = sum(trials <= small_size for task in members for trials in _sizes(task))
        # Rounds in flight count, so that two devices do not plan the same one.
        small += sum(0 < task.in_flight <= small_size and bool(task.points) for task in members)
        if len(members) == 1 or full <= small:
            continue
        # The gradient picked the member for the newest full round.
        candidates = [task for task in members if _sizes(task) and _sizes(task)[-1] > small_size]
        slopes = {task.index: gradient_us(replace(task, points=task.points[:-1])) for task in candidates}
        newest = max(candidates, key=lambda task: (slopes[task.index], -task.index), default=None)
        if newest is not None:
            yield [task for task in members if task is not newest]


def _sizes(task: TaskView) -> list[int]:
    return [point.trials - previous.trials for previous, point in pairwise(task.points)]
