"""The calibration of beliefs on recorded curves: what the belief is shown, and how it is judged."""

from collections.abc import Sequence

import pytest

from benchmarks.calibration import Judged, figures_of, replay
from benchmarks.sim.curve_file import RecordedRound
from mallorn.services.planner.planner_values import Forecast, TaskView
from mallorn.services.planner.power_law_belief import PowerLaw


def recorded(task: int, at: int, best_us: float | None, size: int = 4) -> RecordedRound:
    return RecordedRound(
        model="mlp",
        seed=0,
        task=task,
        name=f"t{task}",
        op="dense",
        structure="s",
        weight=1,
        flops=1e6,
        index=2 * at + task,
        round=at,
        trials=4 * (at + 1),
        size=size,
        best_us=best_us,
        failures=0 if best_us else 4,
        seconds=2.0,
        started_at=0.0,
        candidates_us=(best_us,) * 4,
    )


class Listener(PowerLaw):
    """Expects 8 to 12 us of everything, and remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, list[TaskView]]] = []

    def forecast(self, tasks: Sequence[TaskView], size: int) -> list[Forecast]:
        self.shown.append((size, list(tasks)))
        return [Forecast(10.0, 8.0, 12.0 + task.index, 1.0, 1.0, 0.5) for task in tasks]


CURVES = [recorded(0, 0, 12.0), recorded(1, 0, None), recorded(0, 1, 9.0), recorded(1, 1, 13.0, size=3)]


def test_before_each_round_the_belief_sees_what_every_task_had_by_then() -> None:
    belief = Listener()
    list(replay(CURVES, belief))
    points = [(size, [len(view.points) for view in views]) for size, views in belief.shown]
    assert points == [(4, [0, 0]), (3, [1, 1]), (4, [1, 1])]
    first, second = belief.shown[-1][1]
    assert (first.points[0].trials, first.points[0].best_us, first.failed_rounds) == (4, 12.0, 0)
    assert (second.best_us, second.failed_rounds, second.trials) == (None, 1, 4)
    assert first.family == second.family
    assert first.seconds_per_trial == 0.5


def test_each_forecast_is_judged_by_the_round_that_it_was_for() -> None:
    judged = [(one.task, one.known, one.found_us, one.held) for one in replay(CURVES, Listener())]
    assert judged == [("t0", 0, 12.0, True), ("t0", 1, 9.0, True), ("t1", 0, 13.0, True)]


def test_a_task_whose_curve_ended_still_informs_its_siblings() -> None:
    belief = Listener()
    judged = list(replay([*CURVES, recorded(0, 2, 20.0)], belief))
    assert [len(view.points) for view in belief.shown[-1][1]] == [2, 2]
    assert (judged[-1].task, judged[-1].held) == ("t0", False)


def test_figures_tell_the_misses_apart() -> None:
    found = [5.0, 9.0, 10.0, 30.0]
    figures = figures_of([Judged("m", 0, "t", 1, 8.0, 10.0, 12.0, value) for value in found])
    assert (figures["held"], figures["below"], figures["above"]) == (0.5, 0.25, 0.25)
    assert figures["log_width"] == pytest.approx(0.405, abs=1e-3)
