"""The figures of `auto` on curves small enough to be played by hand."""

import pytest

from benchmarks.auto_budget import played
from benchmarks.sim.play import Run, Step
from benchmarks.sim.synthetic import flat


def test_what_trials_won_is_a_share_of_what_was_there_before_them() -> None:
    steps = (Step(16, 1.0, 100.0), Step(32, 2.0, 80.0), Step(48, 3.0, 80.0))
    run = Run(160.0, 80.0, 48, steps, 0, 0.0, 1, 3, 0.0, "")
    assert run.won(0, 16) == pytest.approx(1 - 100 / 160)
    assert run.won(16, 16) == pytest.approx(0.2)
    assert run.won(20, 100) == pytest.approx(0.2)
    assert run.won(32, 100) == 0.0


def test_a_larger_threshold_ends_sooner_and_leaves_more() -> None:
    model = flat(1, tasks=6, trials=64)
    soon, late = (played(model, worth, recorded=False) for worth in (0.05, 0.005))
    assert soon.trials < late.trials
    assert soon.left >= late.left >= 1.0
    assert soon.hoped > late.hoped
