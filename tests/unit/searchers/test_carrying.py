"""Candidates carried to another shape: well-formed there, as like as its extents allow."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.candidate import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.adapt_candidate_to_shape import adapt_candidate

SIZES = st.sampled_from([1, 2, 7, 12, 30, 48, 64, 96, 127, 224, 1000])
LISTED = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2), labels=(0, 16, 64), weights=(1.0, 1.0, 1.0))
PLACE = Choice(ChoiceKind.LOCATION, 1, values=(-2, -1, 3, 5))


def sketch(extent: int, inner: int, key: str = "s", limit: int = 64) -> Sketch:
    """Two tiles, a listed value and a place."""
    tiles = Choice(ChoiceKind.TILE, 4, extent, limit), Choice(ChoiceKind.TILE, 2, inner, limit)
    return Sketch(key, "[]", (*tiles, LISTED, PLACE))


def tiled(extent: int, data: st.DataObject, width: int, limit: int = 64) -> list[int]:
    """Factors of an extent, the last within the limit."""
    rest, factors = extent, []
    for _ in range(width - 1):
        divisors = [each for each in range(1, min(rest, limit) + 1) if rest % each == 0]
        factors.append(data.draw(st.sampled_from(divisors)))
        rest //= factors[-1]
    return [rest, *factors]


@given(SIZES, SIZES, SIZES, SIZES, st.data())
def test_what_is_carried_is_well_formed_where_it_comes_to(
    there: int, inner: int, here: int, here_inner: int, data: st.DataObject
) -> None:
    decisions = (*tiled(there, data, 4), *tiled(inner, data, 2), data.draw(st.integers(0, 2)), 3)
    carried = adapt_candidate(Candidate("s", decisions), sketch(there, inner), [sketch(here, here_inner)])
    assert carried is not None
    assert prod(carried.decisions[:4]) == here
    assert prod(carried.decisions[4:6]) == here_inner
    assert carried.decisions[6:] == decisions[6:]
    possible = any(here % each == 0 for each in range(1, 65))
    assert not possible or carried.decisions[3] <= 64


@given(SIZES, SIZES, st.data())
def test_to_its_own_shape_it_is_carried_unchanged(there: int, inner: int, data: st.DataObject) -> None:
    decisions = (*tiled(there, data, 4), *tiled(inner, data, 2), 1, -1)
    candidate = Candidate("s", decisions)
    assert adapt_candidate(candidate, sketch(there, inner), [sketch(there, inner)]) == candidate


def test_inner_tiles_stay_and_the_outermost_takes_the_rest() -> None:
    carried = adapt_candidate(Candidate("s", (2, 3, 4, 16, 3, 16, 0, 3)), sketch(384, 48), [sketch(768, 96)])
    assert carried is not None
    assert carried.decisions == (4, 3, 4, 16, 6, 16, 0, 3)


def test_a_sketch_of_another_name_that_chooses_the_same_will_do() -> None:
    candidate = Candidate("s", (2, 3, 4, 16, 3, 16, 0, 3))
    carried = adapt_candidate(candidate, sketch(384, 48), [sketch(384, 48, key="other")])
    assert carried == Candidate("other", candidate.decisions)


def test_a_listed_value_is_found_by_what_it_stands_for() -> None:
    other = Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=(16, 512), weights=(0.5, 0.5))
    here = Sketch("s", "[]", (*sketch(4, 4).choices[:2], other, PLACE))
    carried = adapt_candidate(Candidate("s", (1, 1, 1, 4, 1, 4, 1, 4)), sketch(4, 4), [here])
    assert carried is not None
    assert carried.decisions[6:] == (0, 3)  # 16 stands there at 0, and 4 is nearest to 3


def test_a_carried_tile_keeps_its_inner_multiple() -> None:
    there, here = (
        Sketch("p", "[]", (Choice(ChoiceKind.TILE, 5, extent, inner_multiple=(3, 4)),)) for extent in (32, 24)
    )
    carried = adapt_candidate(Candidate("p", (2, 2, 2, 4, 1)), there, [here])
    assert carried is not None
    outer, inner = carried.decisions[:3], carried.decisions[3:]
    assert prod(outer) * prod(inner) == 24
    assert prod(inner) % 4 == 0


@pytest.mark.parametrize("others", [[], [Sketch("t", "[]", (LISTED,))]])
def test_without_a_like_sketch_nothing_is_carried(others: list[Sketch]) -> None:
    assert adapt_candidate(Candidate("s", (1, 1, 1, 4, 1, 4, 1, 3)), sketch(4, 4), others) is None
