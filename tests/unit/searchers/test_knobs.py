"""Decisions taken one by one make well-formed rows, and distributions over them are learnt."""

import numpy as np
import pytest

from mallorn.searchers.learning.knobs import KnobDistributions, Knobs, frequency_logits, knobs_of, softmax
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import TILED, SyntheticSpace
from mallorn.searchers.testing import assert_well_formed
from mallorn.searchers.tile_factorizations import tilings

TILE = Choice(ChoiceKind.TILE, 3, extent=12, limit=4)
LIST = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2))
SKETCH = Sketch("s", "", (TILE, LIST))


def tables(knobs: Knobs) -> KnobDistributions:
    return KnobDistributions(knobs, np.zeros(knobs.exists.shape), rate=0.3)


@pytest.mark.parametrize("shape", [(96, 60, 7), (1, 1, 1), (256, 64, 97)])
def test_whatever_is_drawn_is_well_formed(shape: tuple[int, int, int]) -> None:
    space = SyntheticSpace(*shape)
    drawn = tables(knobs_of(space.by_key[TILED])).draw(np.random.default_rng(0), 200)
    for row in drawn.rows.tolist():
        assert_well_formed(space, Candidate(TILED, tuple(row)))


def test_every_candidate_of_a_sketch_can_be_drawn() -> None:
    drawn = tables(knobs_of(SKETCH)).draw(np.random.default_rng(0), 4000)
    tilings = sum(1 for inner in (1, 2, 3, 4) for middle in range(1, 13) if (12 // inner) % middle == 0)
    assert len({tuple(row) for row in drawn.rows.tolist()}) == tilings * 3


def test_inner_factors_are_decided_so_that_they_multiply_to_a_multiple() -> None:
    partitioned = Choice(ChoiceKind.TILE, 5, extent=24, inner_multiple=(3, 4))
    drawn = tables(knobs_of(Sketch("p", "", (partitioned,)))).draw(np.random.default_rng(0), 4000)
    possible = {tuple(row) for row in tilings(24, 5).tolist() if row[3] * row[4] % 4 == 0}
    assert {tuple(row) for row in drawn.rows.tolist()} == possible


def test_places_are_those_from_which_a_row_was_made() -> None:
    knobs = knobs_of(SyntheticSpace(96, 60, 7).by_key[TILED])
    drawn = tables(knobs).draw(np.random.default_rng(1), 100)
    np.testing.assert_array_equal(knobs.option_indices(drawn.rows), drawn.places)


def test_counting_makes_frequent_options_likely_and_none_impossible() -> None:
    knobs = knobs_of(SKETCH)
    liked = np.array([[3, 1, 4, 2]] * 9 + [[12, 1, 1, 2]], dtype=np.int32)
    chances = softmax(frequency_logits(knobs, liked, np.ones(10)), knobs.exists)
    assert chances[0].argmax() == 3  # innermost factor 4
    assert chances[2, 2] > 0.8
    assert (chances[knobs.exists] > 0.01).all()
    assert (chances[~knobs.exists] == 0).all()


def test_counting_nothing_leaves_all_options_alike() -> None:
    knobs = knobs_of(SKETCH)
    chances = softmax(frequency_logits(knobs, np.empty((0, 4), dtype=np.int32), np.empty(0)), knobs.exists)
    assert np.ptp(chances[0][knobs.exists[0]]) < 1e-9


def test_what_is_rewarded_becomes_likely() -> None:
    table, rng = tables(knobs_of(SKETCH)), np.random.default_rng(0)
    for _ in range(30):
        draw = table.draw(rng, 64)
        worth = (draw.rows[:, 2] == 4).astype(np.float64) + (draw.rows[:, 3] == 1)
        table.learn(draw, worth - worth.mean(), entropy=0.0)
    learnt = table.draw(rng, 200).rows
    assert np.mean((learnt[:, 2] == 4) & (learnt[:, 3] == 1)) > 0.9


def test_the_entropy_bonus_alone_evens_a_distribution_out() -> None:
    knobs, rng = knobs_of(SKETCH), np.random.default_rng(0)
    table = KnobDistributions(knobs, np.where(knobs.exists, [3.0] + [0.0] * (knobs.most - 1), 0.0), rate=0.3)
    for _ in range(40):
        draw = table.draw(rng, 64)
        table.learn(draw, np.zeros(64), entropy=1.0)
    chances = softmax(table.logits, knobs.exists)
    assert np.ptp(chances[2, :3]) < 0.2
