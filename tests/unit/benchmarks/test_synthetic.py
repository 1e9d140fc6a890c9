"""Drawn curves: new for every seed, and of the shape they promise."""

import pytest

from benchmarks.sim.synthetic import SHAPES, TASKS, TRIALS, failing, flat, late


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_seed_draws_one_model_and_another_seed_another(shape: str) -> None:
    draw = SHAPES[shape]
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert draw(3).trials == TASKS * TRIALS


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_latencies_and_seconds_are_positive(shape: str) -> None:
    for task in SHAPES[shape](0).tasks:
        assert min(task.valid_us, default=1.0) > 0.0
        assert min(task.seconds) > 0.0


def test_only_failing_models_fail() -> None:
    failures = {
        shape: sum(len(t.candidates_us) - len(t.valid_us) for t in SHAPES[shape](0).tasks) for shape in SHAPES
    }
    assert {shape for shape, count in failures.items() if count} == {"failing"}
    shares = [len(task.valid_us) / TRIALS for task in failing(0).tasks]
    assert max(shares) - min(shares) > 0.3


def test_late_models_have_tasks_whose_gain_comes_after_a_long_stand() -> None:
    def gains(first: int, last: int) -> list[float]:
        return [min(task.valid_us[first:last]) / min(task.valid_us) for task in late(1).tasks]

    assert max(gains(0, TRIALS // 5)) > 1.3


def test_flat_models_have_little_to_gain_but_in_every_fifth_task() -> None:
    tasks = flat(2).tasks
    left = [min(task.valid_us[:16]) / min(task.valid_us) for task in tasks]
    assert all(gain < 1.15 for at, gain in enumerate(left) if at % 5)
    assert max(left) > 1.15
