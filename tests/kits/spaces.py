"""The conformance kit of spaces."""

from collections.abc import Callable

import numpy as np
import pytest

from mallorn.searchers.space import Candidate, Space
from mallorn.searchers.testing import SEEDS, assert_well_formed, generator, split_by_choice


class SpaceTestCase:
    """Give the fixture `make_space`: a function that builds the same space anew."""

    @pytest.fixture
    def make_space(self) -> Callable[[], Space]:
        raise NotImplementedError

    @pytest.fixture
    def space(self, make_space: Callable[[], Space]) -> Space:
        return make_space()

    def test_sketches_have_distinct_keys(self, space: Space) -> None:
        assert space.sketches
        assert len(space.by_key) == len(space.sketches)

    def test_ordinals_are_the_places_of_the_sketches(self, space: Space) -> None:
        assert [sketch.ordinal for sketch in space.sketches] == list(range(len(space.sketches)))

    @pytest.mark.parametrize("count", [0, 1, 7, 100])
    def test_sample_draws_as_many_well_formed_candidates_as_asked(self, space: Space, count: int) -> None:
        drawn = space.sample(generator(0), count)
        assert len(drawn) == count
        for candidate in drawn:
            assert_well_formed(space, candidate)

    def test_sample_is_spread_over_the_sketches(self, space: Space) -> None:
        drawn = space.sample(generator(0), 16 * len(space.sketches))
        assert {candidate.sketch for candidate in drawn} == set(space.by_key)

    def test_different_generators_draw_different_candidates(self, space: Space) -> None:
        assert space.sample(generator(0), 50) != space.sample(generator(1), 50)

    def test_a_space_built_anew_answers_alike(self, make_space: Callable[[], Space]) -> None:
        first, second = make_space(), make_space()
        drawn = first.sample(generator(3), 40)
        assert second.sample(generator(3), 40) == drawn
        assert list(second.sketches) == list(first.sketches)
        assert second.defaults() == first.defaults()
        assert second.mutate_all(generator(4), drawn) == first.mutate_all(generator(4), drawn)
        assert second.cross_all(generator(4), drawn, drawn[::-1]) == first.cross_all(
            generator(4), drawn, drawn[::-1]
        )
        np.testing.assert_array_equal(second.features(drawn), first.features(drawn))
        assert second.valid(drawn[:8]) == first.valid(drawn[:8])

    @pytest.mark.parametrize("seed", SEEDS)
    def test_mutate_changes_exactly_one_choice(self, space: Space, seed: int) -> None:
        parents = space.sample(generator(seed), 40)
        for parent, child in zip(parents, space.mutate_all(generator(seed), parents), strict=True):
            self._assert_one_change(space, parent, child)
            self._assert_one_change(space, parent, space.mutate(generator(seed), parent))

    @staticmethod
    def _assert_one_change(space: Space, parent: Candidate, child: Candidate) -> None:
        assert_well_formed(space, child)
        assert child.sketch == parent.sketch
        sketch = space.by_key[parent.sketch]
        before, after = split_by_choice(sketch, parent.decisions), split_by_choice(sketch, child.decisions)
        changes = sum(old != new for old, new in zip(before, after, strict=True))
        free = len({c.decisions for c in space.sample(generator(0), 200) if c.sketch == sketch.key}) > 1
        assert changes == (1 if free else 0)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_cross_takes_each_choice_from_a_parent(self, space: Space, seed: int) -> None:
        mothers, fathers = space.sample(generator(seed), 40), space.sample(generator(seed + 100), 40)
        children = space.cross_all(generator(seed), mothers, fathers)
        for mother, father, child in zip(mothers, fathers, children, strict=True):
            self._assert_inherited(space, mother, father, child)
            alone = space.cross(generator(seed), mother, father)
            self._assert_inherited(space, mother, father, alone)

    @staticmethod
    def _assert_inherited(space: Space, mother: Candidate, father: Candidate, child: Candidate) -> None:
        assert_well_formed(space, child)
        if mother.sketch != father.sketch:
            assert child == mother
            return
        sketch = space.by_key[mother.sketch]
        parts = (split_by_choice(sketch, c.decisions) for c in (child, mother, father))
        assert all(own in (hers, his) for own, hers, his in zip(*parts, strict=True))

    def test_defaults_are_well_formed_distinct_and_one_is_valid(self, space: Space) -> None:
        defaults = space.defaults()
        for candidate in defaults:
            assert_well_formed(space, candidate)
        assert len(set(defaults)) == len(defaults)
        assert any(space.valid(defaults))

    def test_validity_does_not_depend_on_the_company(self, space: Space) -> None:
        asked = [*space.sample(generator(5), 8), *space.defaults()]
        answers = space.valid(asked)
        assert len(answers) == len(asked)
        assert answers == [space.valid([candidate])[0] for candidate in asked]
        assert space.valid([]) == []

    def test_features_have_one_finite_row_a_candidate(self, space: Space) -> None:
        drawn = space.sample(generator(6), 20)
        features = space.features(drawn)
        assert features.dtype == np.float32
        assert features.shape[0] == len(drawn)
        assert np.isfinite(features).all()
        assert space.features([]).shape == (0, features.shape[1])
        np.testing.assert_array_equal(space.features(drawn[3:5]), features[3:5])

    def test_keys_name_candidates(self, space: Space) -> None:
        drawn = set(space.sample(generator(7), 200))
        assert len({candidate.key for candidate in drawn}) == len(drawn)
