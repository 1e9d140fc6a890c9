"""The oracle divides rounds as well as it can be done."""

from itertools import product

import pytest

from benchmarks.sim.curves import ModelCurves
from benchmarks.sim.oracle import fewest_trials
from benchmarks.sim.synthetic import smooth
from tests.unit.benchmarks.made_up import TWO_TASKS, task


def test_by_hand_it_skips_what_is_not_worth_a_round() -> None:
    # 130 untuned, 52 in the end: three rounds of steep alone make 25 + 30 = 55, within 1.06.
    assert fewest_trials(TWO_TASKS, 1.06, size=4) == 12
    assert fewest_trials(TWO_TASKS, 1.05, size=4) == 24
    assert fewest_trials(TWO_TASKS, 2.5, size=4) == 0


def test_it_waits_for_a_gain_behind_a_round_that_brings_none() -> None:
    slow = task("slow", 1, (100.0, 100.0, 10.0), 1.0)
    quick = task("quick", 1, (20.0, 15.0, 10.0), 1.0)
    assert fewest_trials(ModelCurves("late", (slow, quick)), 1.5, size=4) == 12


@pytest.mark.parametrize("factor", [1.02, 1.05, 1.2])
def test_no_division_of_rounds_does_better(factor: float) -> None:
    model = smooth(5, tasks=4, trials=64)
    enough = [
        sum(rounds)
        for rounds in product(range(5), repeat=4)
        if _latency(model, rounds) <= factor * model.final_us
    ]
    assert fewest_trials(model, factor) == 16 * min(enough)


def _latency(model: ModelCurves, rounds: tuple[int, ...]) -> float:
    played = zip(model.tasks, rounds, strict=True)
    return sum(t.weight * min((t.untuned_us, *t.valid_us[: 16 * count])) for t, count in played)
