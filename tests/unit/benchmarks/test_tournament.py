"""Policies are compared on the same curves, without constants fitted on the judged model."""

from itertools import product

import pytest

from benchmarks.sim.fitted import FITTED, constants, left_out
from benchmarks.sim.ratios import WHATS, foresight, ratio
from benchmarks.sim.report import HEAD, figures, line, ratio_lines
from benchmarks.sim.synthetic import smooth
from benchmarks.sim.tournament import (
    FACTORS,
    RECORDED,
    SYNTHETIC,
    Arena,
    Cell,
    arenas,
    geometric_mean,
    oracle,
    tournament,
)
from mallorn.core.registry import REGISTRY
from mallorn.services.planner import ansor_gradient
from tests.unit.benchmarks.made_up import TWO_TASKS


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    monkeypatch.setitem(REGISTRY["policy"], "favourite", "tests.unit.benchmarks.made_up:Favourite")
    over = [Arena(RECORDED, "two", (TWO_TASKS,))]
    return list(tournament(over, ["round-robin", "favourite"], [1, 2], seeds=2, round_size=4))


def test_every_policy_plays_every_model_on_every_number_of_devices(cells: list[Cell]) -> None:
    assert [(cell.model, cell.policy, cell.devices, len(cell.runs)) for cell in cells] == [
        ("two", "round-robin", 1, 2),
        ("two", "favourite", 1, 2),
        ("two", "round-robin", 2, 2),
        ("two", "favourite", 2, 2),
    ]


def test_a_ratio_is_the_geometric_mean_over_models_and_prints_as_a_table(cells: list[Cell]) -> None:
    mine, theirs = cells[1], cells[0]
    found = ratio(cells, "favourite", "round-robin", (RECORDED, 1), "trials", 1.06)
    assert found.by_model == {"two": mine.trials_to(1.06) / theirs.trials_to(1.06)}
    assert found.mean == pytest.approx(found.by_model["two"])
    others = [
        ratio(cells, "favourite", "round-robin", (RECORDED, 1), what, factor)
        for what, factor in product(WHATS, FACTORS)
    ]
    head, row = ratio_lines(others)
    assert len(head) == len(row)
    assert "favourite / round-robin" in row


def test_seeds_take_the_recordings_of_a_model_in_turn() -> None:
    arena = Arena(RECORDED, "m", (TWO_TASKS, Arena(SYNTHETIC, "flat").curves(0)))
    assert [arena.curves(seed).name for seed in range(3)] == ["two", "flat", "two"]


def test_drawn_models_are_new_for_every_seed_and_can_be_left_out() -> None:
    drawn = Arena(SYNTHETIC, "smooth")
    assert drawn.curves(0) != drawn.curves(1)
    assert {arena.kind for arena in arenas({"two": [TWO_TASKS]}, synthetic=False)} == {RECORDED}
    assert {arena.kind for arena in arenas({"two": [TWO_TASKS]}, synthetic=True)} == {RECORDED, SYNTHETIC}


def test_the_geometric_mean_weighs_halving_and_doubling_alike() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


def test_a_model_is_judged_with_the_constants_fitted_without_it() -> None:
    table = {"two": {"mallorn.services.planner.ansor_gradient:BACKWARD_SHARE": 0.9}}
    before = ansor_gradient.BACKWARD_SHARE
    with left_out("two", table):
        assert ansor_gradient.BACKWARD_SHARE == 0.9
    with left_out("other", table):
        assert before == ansor_gradient.BACKWARD_SHARE
    assert before == ansor_gradient.BACKWARD_SHARE


def test_a_constant_of_a_class_is_set_and_put_back() -> None:
    before = ansor_gradient.Gradient.first_visit
    with constants({"mallorn.services.planner.ansor_gradient:Gradient.first_visit": 0.25}):
        assert ansor_gradient.Gradient.first_visit == 0.25
    assert before == ansor_gradient.Gradient.first_visit


def test_whatever_was_fitted_is_still_there_under_its_name() -> None:
    for table in FITTED.values():
        with constants(table):
            pass


def test_a_cell_prints_under_its_head_and_keeps_a_figure_a_seed(cells: list[Cell]) -> None:
    assert len(line(cells[0])) == len(HEAD)
    raw = figures(cells[0])
    assert len(raw["trials_to_1.05"]) == 2
    assert raw["reached_1.05"] == cells[0].reached(1.05)


def test_no_policy_needs_fewer_trials_than_foresight_does(cells: list[Cell]) -> None:
    fewest = oracle(Arena(RECORDED, "two", (TWO_TASKS,)), seeds=2)
    assert all(cell.trials_to(factor) >= fewest[factor] for cell in cells for factor in FACTORS)


def test_foresight_bounds_the_ratio_of_trials(cells: list[Cell]) -> None:
    trials = next(cell for cell in cells if (cell.policy, cell.devices) == ("round-robin", 1)).trials_to(1.06)
    assert foresight(cells, "round-robin", {"two": 12.0}, 1.06) == pytest.approx(12.0 / trials)


def test_who_throws_no_dice_plays_a_recording_twice_and_who_does_plays_every_seed() -> None:
    over = [Arena(RECORDED, "many", (smooth(0, tasks=6, trials=32),))]
    blind, dice = tournament(over, ["round-robin", "random"], [1], seeds=6)
    assert len(blind.runs) == len(dice.runs) == 6
    assert len({id(run) for run in blind.runs}) == 2
    assert len({id(run) for run in dice.runs}) > 2
