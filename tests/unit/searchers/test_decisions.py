"""A space of arbitrary sketches: weights, locations, choices without freedom, and malformed vectors."""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.machine import assume_typical_cpu
from mallorn.costmodels.decision_columns import WIDTH
from mallorn.searchers.decision_space import DecisionSpace
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch, Space
from mallorn.searchers.testing import assert_well_formed, split_by_choice
from tests.kits.spaces import SpaceTestCase

TILES = st.builds(
    Choice,
    st.just(ChoiceKind.TILE),
    st.integers(2, 5),
    extent=st.integers(1, 720),
    limit=st.sampled_from([0, 64]),
)
PARTITIONED = st.builds(
    lambda multiple, times: Choice(ChoiceKind.TILE, 5, extent=multiple * times, inner_multiple=(3, multiple)),
    st.sampled_from([2, 4, 12]),
    st.integers(1, 64),
)
LISTS = st.sampled_from(
    [
        Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2), labels=(0, 16, 64), weights=(0.2, 0.3, 0.5)),
        Choice(ChoiceKind.CATEGORICAL, 1, values=(0,)),
        Choice(ChoiceKind.LOCATION, 1, values=(-2, -1, 4)),
    ]
)
SKETCHES = st.lists(st.lists(TILES | PARTITIONED | LISTS, max_size=14), min_size=1, max_size=3)


class AnySpace(DecisionSpace):
    def __init__(
        self, sketches: Sequence[Sequence[Choice]], descriptors: Sequence[float] = (1.0, 2.0)
    ) -> None:
        made = [Sketch(f"s{at}", "", tuple(choices), at) for at, choices in enumerate(sketches)]
        super().__init__(made, descriptors, assume_typical_cpu(cores=2, lanes=4))

    def defaults(self) -> list[Candidate]:
        return self.sample(np.random.default_rng(0), 1)

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [True] * len(candidates)


class TestSpaceOfManySketches(SpaceTestCase):
    @pytest.fixture
    def make_space(self) -> Callable[[], Space]:
        tile = Choice(ChoiceKind.TILE, 4, extent=96, limit=64)
        location = Choice(ChoiceKind.LOCATION, 1, values=(-2, -1, 0, 3))
        partitioned = Choice(ChoiceKind.TILE, 5, extent=96, inner_multiple=(3, 4))
        return lambda: AnySpace([[tile] * 9, [location, tile], [], [tile, location], [partitioned, tile]])


@given(SKETCHES, st.integers(0, 2**16))
def test_whatever_the_sketches_children_obey_them(sketches: list[list[Choice]], seed: int) -> None:
    space, rng = AnySpace(sketches), np.random.default_rng(seed)
    parents = space.sample(rng, 12)
    children = space.mutate_all(rng, parents)
    family = [*parents, *children, *space.cross_all(rng, parents, parents[::-1])]
    for candidate in family:
        assert_well_formed(space, candidate)
    assert all(space.well_formed(family))
    assert space.features(family).shape == (len(family), WIDTH)
    for parent, child in zip(parents, children, strict=True):
        parts = (split_by_choice(space.by_key[parent.sketch], c.decisions) for c in (parent, child))
        assert sum(before != after for before, after in zip(*parts, strict=True)) <= 1


def test_categories_are_drawn_by_weight_and_mutated_evenly() -> None:
    weights = (0.7, 0.3, 0.0)
    space = AnySpace([[Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2), weights=weights)]])
    rng = np.random.default_rng(0)
    drawn = Counter(c.decisions[0] for c in space.sample(rng, 4000))
    assert drawn[0] == pytest.approx(2800, abs=150)
    assert drawn[2] == 0
    assert {space.mutate(rng, Candidate("s0", (0,))).decisions[0] for _ in range(20)} == {1}


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("s0", (4, 4, 0)),
        Candidate("s0", (12, 2)),
        Candidate("s0", (12, 2, 7)),
        Candidate("elsewhere", (12, 2, 0)),
    ],
)
def test_malformed_candidates_are_told_apart(candidate: Candidate) -> None:
    tile = Choice(ChoiceKind.TILE, 2, extent=24, limit=8)
    space = AnySpace([[tile, Choice(ChoiceKind.LOCATION, 1, values=(-1, 0))]])
    assert space.well_formed([candidate, Candidate("s0", (12, 2, 0))]) == [False, True]
