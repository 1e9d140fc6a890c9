"""Tiny curves and a policy whose order can be worked out by hand."""

from collections.abc import Sequence

from benchmarks.sim.curve_file import RecordedRound
from benchmarks.sim.curves import ModelCurves, TaskCurve
from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.policy import Arm, Policy, TaskChoice

ROUND = RecordedRound(
    model="mlp",
    seed=0,
    task=1,
    name="dense",
    op="matmul",
    structure="s0",
    weight=2,
    flops=1e6,
    index=3,
    round=0,
    trials=3,
    size=3,
    best_us=7.5,
    failures=1,
    seconds=1.25,
    started_at=1000.5,
    candidates_us=(8.0, None, 7.5),
)


def task(name: str, weight: int, levels_us: Sequence[float | None], sec: float, **known: bool) -> TaskCurve:
    """A curve that stays at each level for four candidates. Less weight, more operations."""
    candidates = tuple(level for level in levels_us for _ in range(4))
    return TaskCurve(
        name, weight, 4e6 / weight**2, "matmul", "s0", candidates, (sec,) * len(candidates), **known
    )


# Falls by 50 and 25 us in rounds of 4 seconds; the other falls by 3 x 1 us in its third, rounds of 8 seconds.
TWO_TASKS = ModelCurves(
    "two", (task("steep", 1, (100.0, 50.0, 25.0), 1.0), task("level", 3, (10.0, 10.0, 9.0), 2.0))
)


class Favourite(Policy):
    """Plays the first task to its end before any other."""

    rests = False

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        chosen = min((arm.task for arm in arms), key=lambda task: (task.rounds >= 3, task.index))
        return TaskChoice(chosen, 0.0, "the favourite")
