"""Directions change a row by a little, lead back, and never out of the space."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import TILED, SyntheticSpace
from mallorn.searchers.testing import assert_well_formed
from mallorn.searchers.tile_factorizations import Rows
from mallorn_research.searchers.decision_moves import STAY, Moves, moves_of

TILE = Choice(ChoiceKind.TILE, 3, extent=12, limit=4)
LIST = Choice(ChoiceKind.LOCATION, 1, values=(-1, 3, 5), weights=(0.5, 0.0, 0.5))
SKETCH = Sketch("s", "", (TILE, LIST))


def rows(*lines: tuple[int, ...]) -> Rows:
    return np.array(lines, dtype=np.int32)


def neighbours(row: tuple[int, ...]) -> set[tuple[int, ...]]:
    moves = moves_of(SKETCH)
    legal = np.flatnonzero(moves.legal(rows(row))[0])
    moved = moves.apply(np.repeat(rows(row), len(legal), axis=0), legal)
    return set(map(tuple, moved.tolist()))


def test_a_prime_moves_between_levels_and_a_list_goes_to_its_next_possible_value() -> None:
    assert neighbours((6, 1, 2, -1)) == {
        (3, 2, 2, -1),
        (2, 3, 2, -1),
        (3, 1, 4, -1),
        (12, 1, 1, -1),
        (6, 2, 1, -1),
        (6, 1, 2, 5),
    }


def test_the_innermost_level_keeps_its_limit() -> None:
    assert all(neighbour[2] <= 4 for neighbour in neighbours((3, 1, 4, 5)))


def test_inner_factors_stay_a_multiple() -> None:
    sketch = Sketch("p", "", (TILE, Choice(ChoiceKind.TILE, 5, extent=16, inner_multiple=(3, 4))))
    moves, here = Moves(sketch), rows((6, 1, 2, 2, 1, 1, 4, 2), (6, 1, 2, 4, 1, 1, 4, 1))
    for row, legal in zip(here, moves.legal(here), strict=True):
        ways = np.flatnonzero(legal)
        moved = moves.apply(np.repeat(row[None], len(ways), axis=0), ways)
        assert (moved[:, 6:].prod(axis=1) % 4 == 0).all()
        leaves = (moved[:, 6:].prod(axis=1) < row[6:].prod()).any()
        assert leaves == (row[6:].prod() > 4)
        barred = np.flatnonzero(~legal)
        stayed = moves.apply(np.repeat(row[None], len(barred), axis=0), barred)
        assert (stayed == row).all()


def test_an_illegal_direction_and_none_at_all_leave_a_row_where_it_is() -> None:
    moves, here = moves_of(SKETCH), rows((12, 1, 1, -1))
    illegal = np.flatnonzero(~moves.legal(here)[0])
    assert illegal.size
    for way in [*illegal.tolist(), STAY]:
        np.testing.assert_array_equal(moves.apply(here, np.array([way])), here)


@given(st.integers(0, 2**32 - 1))
def test_every_legal_step_is_well_formed_changes_something_and_can_be_taken_back(seed: int) -> None:
    space, rng = SyntheticSpace(96, 60, 7), np.random.default_rng(seed)
    sketch, moves = space.by_key[TILED], moves_of(space.by_key[TILED])
    drawn = rows(*(c.decisions for c in space.sample(rng, 8)))
    legal = moves.legal(drawn)
    way = np.where(legal, rng.random(legal.shape), -1.0).argmax(axis=1)
    moved = moves.apply(drawn, way)
    assert (moved != drawn).any(axis=1).all()
    for row in moved.tolist():
        assert_well_formed(space, Candidate(sketch.key, tuple(row)))
    back = [set(map(tuple, _all_steps(moves, row).tolist())) for row in moved]
    assert all(tuple(row) in steps for row, steps in zip(drawn.tolist(), back, strict=True))


def _all_steps(moves: Moves, row: Rows) -> Rows:
    return moves.apply(np.tile(row, (len(moves), 1)), np.arange(len(moves)))


def test_the_two_directions_of_a_knob_undo_each_other() -> None:
    moves, here = moves_of(SKETCH), rows((3, 2, 2, -1))
    for less, more in moves.knobs.tolist():
        for first, second in ((less, more), (more, less)):
            if moves.legal(here)[0, first]:
                there = moves.apply(here, np.array([first]))
                np.testing.assert_array_equal(moves.apply(there, np.array([second])), here)


def test_a_knob_is_a_prime_of_an_inner_level_or_a_list() -> None:
    assert len(moves_of(SKETCH).knobs) == 2 * 2 + 1


@pytest.mark.parametrize("choices", [(), (Choice(ChoiceKind.TILE, 3, extent=1),)])
def test_a_sketch_without_freedom_has_no_directions(choices: tuple[Choice, ...]) -> None:
    moves = Moves(Sketch("rigid", "", choices))
    here = np.ones((2, 3 * len(choices)), dtype=np.int32)
    assert len(moves) == 0
    assert moves.legal(here).shape == (2, 0)
    np.testing.assert_array_equal(moves.apply(here, np.array([STAY, STAY])), here)
