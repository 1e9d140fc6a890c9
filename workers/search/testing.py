"""Conformance kits: subclass one, give it its fixture, and every clause of the contract is a test."""
# ruff: noqa: S101

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from costmodels.base import CostModel, Prediction
from costmodels.random import RandomModel
from mallorn.core.outcomes import Outcome
from workers.search.base import Searcher, Trial
from workers.search.decisions import DecisionSpace
from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.simulate import trained
from workers.search.space import Candidate, Choice, ChoiceKind, Sketch, Space
from workers.search.synthetic import SyntheticSpace

SEEDS = (0, 1, 2)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def split(sketch: Sketch, decisions: Sequence[int]) -> list[tuple[int, ...]]:
    """The decisions of each choice of a sketch."""
    parts, start = [], 0
    for choice in sketch.choices:
        parts.append(tuple(decisions[start : start + choice.width]))
        start += choice.width
    return parts


def assert_well_formed(space: Space, candidate: Candidate) -> None:
    """Factors multiply up and stay within limits, values are among the allowed ones, all are plain ints."""
    sketch = space.by_key[candidate.sketch]
    assert len(candidate.decisions) == sketch.width
    assert all(type(value) is int for value in candidate.decisions)
    for choice, part in zip(sketch.choices, split(sketch, candidate.decisions), strict=True):
        if choice.kind is ChoiceKind.TILE:
            assert math.prod(part) == choice.extent
            assert all(factor > 0 for factor in part)
            assert not choice.limit or part[-1] <= choice.limit
        else:
            assert part[0] in choice.values


class SpaceTestCase:
    """Give `make_space`: a function that builds the same space anew."""

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
        before, after = split(sketch, parent.decisions), split(sketch, child.decisions)
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
        parts = (split(sketch, c.decisions) for c in (child, mother, father))
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


class TinySpace(DecisionSpace):
    """Ten candidates, valid where the first factor is odd or the index 1: searches must end here."""

    def __init__(self) -> None:
        choices = (
            Choice(ChoiceKind.TILE, 2, extent=12, limit=6),
            Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=(0, 16), weights=(0.5, 0.5)),
        )
        super().__init__([Sketch("tiny", "", choices)], [1.0])

    def everything(self) -> set[Candidate]:
        return {Candidate("tiny", (12 // f, f, i)) for f in (1, 2, 3, 4, 6) for i in (0, 1)}

    def possible(self) -> set[Candidate]:
        return {candidate for candidate in self.everything() if self.valid([candidate])[0]}

    def defaults(self) -> list[Candidate]:
        return [Candidate("tiny", (12, 1, 0)), Candidate("tiny", (3, 4, 0))]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [c.decisions[0] % 2 == 1 or c.decisions[2] == 1 for c in candidates]


class SearcherTestCase:
    """Give `searcher`; the kit runs it on spaces of its own, without a model and with one."""

    @pytest.fixture
    def searcher(self) -> Searcher:
        raise NotImplementedError

    @pytest.fixture
    def space(self) -> SyntheticSpace:
        return SyntheticSpace(64, 64, 64)

    @pytest.fixture
    def history(self, space: SyntheticSpace) -> list[Trial]:
        drawn = dict.fromkeys(space.sample(generator(99), 40))
        return [space.measure(candidate) for candidate in drawn]

    @pytest.fixture(params=["without a model", "with a model"])
    def model(self, request: pytest.FixtureRequest, space: SyntheticSpace) -> CostModel | None:
        if request.param == "without a model":
            return None
        return trained(space, [], RandomModel, seed=1)

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("count", [1, 16, 64])
    def test_proposals_are_distinct_valid_and_new(
        self,
        searcher: Searcher,
        space: SyntheticSpace,
        history: list[Trial],
        model: CostModel | None,
        count: int,
        seed: int,
    ) -> None:
        proposed = [p.candidate for p in searcher.propose(space, history, model, count, generator(seed))]
        assert len(proposed) == len(set(proposed)) == count
        assert all(space.valid(proposed))
        assert not set(proposed) & {trial.candidate for trial in history}
        for candidate in proposed:
            assert_well_formed(space, candidate)

    def test_proposals_are_a_pure_function_of_the_arguments(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        before = list(history)
        first = searcher.propose(space, history, model, 16, generator(1))
        searcher.propose(space, history[:5], model, 8, generator(2))
        assert searcher.propose(space, history, model, 16, generator(1)) == first
        assert searcher.propose(SyntheticSpace(64, 64, 64), history, model, 16, generator(1)) == first
        assert history == before

    def test_different_generators_propose_different_candidates(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        first = searcher.propose(space, history, model, 16, generator(1))
        assert searcher.propose(space, history, model, 16, generator(2)) != first

    def test_without_a_model_and_history_the_defaults_come_first(
        self, searcher: Searcher, space: SyntheticSpace
    ) -> None:
        proposals = searcher.propose(space, [], None, 16, generator(0))
        assert [p.candidate for p in proposals[: len(space.defaults())]] == space.defaults()
        assert len(proposals) == 16

    def test_an_invalid_default_is_left_out(self, searcher: Searcher) -> None:
        proposals = searcher.propose(TinySpace(), [], None, 1, generator(0))
        assert [p.candidate for p in proposals] == [Candidate("tiny", (3, 4, 0))]

    @pytest.mark.parametrize("left", [0, 1, 3])
    def test_an_exhausted_space_gives_what_is_left(
        self, searcher: Searcher, model: CostModel | None, left: int
    ) -> None:
        tiny = TinySpace()
        possible = sorted(tiny.possible(), key=lambda candidate: candidate.key)
        history = [Trial(candidate, Outcome.OK, 10.0) for candidate in possible[left:]]
        proposals = searcher.propose(tiny, history, model, 8, generator(0))
        assert sorted(p.candidate.key for p in proposals) == [c.key for c in possible[:left]]

    def test_a_history_of_failures_alone_is_no_obstacle(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        failed = [Trial(trial.candidate, Outcome.BUILD_ERROR, None) for trial in history]
        assert len(searcher.propose(space, failed, model, 16, generator(0))) == 16

    def test_nothing_is_proposed_when_nothing_is_wanted(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        assert searcher.propose(space, history, model, 0, generator(0)) == []

    def test_every_proposal_says_whose_idea_it_was(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        for proposal in searcher.propose(space, history, model, 32, generator(0)):
            assert proposal.origin
            assert proposal.predicted is None or math.isfinite(proposal.predicted)
            assert type(proposal.predicted) in (float, type(None))


class BatchSamplerTestCase:
    """Give `sampler`; the kit offers it pools of any size."""

    @pytest.fixture
    def sampler(self) -> BatchSampler:
        raise NotImplementedError

    @staticmethod
    def pool(size: int) -> ScoredPool:
        space = SyntheticSpace(64, 64, 64)
        drawn = list(dict.fromkeys(space.sample(generator(0), 2 * size)))[:size]
        scores = generator(1).normal(size=len(drawn)).astype(np.float32)
        return ScoredPool(drawn, space.features(drawn), Prediction(scores, np.abs(scores)))

    @pytest.mark.parametrize(("size", "count"), [(0, 4), (1, 4), (50, 0), (50, 16), (50, 50), (50, 80)])
    def test_it_chooses_distinct_lines_as_many_as_there_are(
        self, sampler: BatchSampler, size: int, count: int
    ) -> None:
        chosen = sampler.choose(self.pool(size), count, generator(2)).tolist()
        assert len(chosen) == len(set(chosen)) == min(size, count)
        assert set(chosen) <= set(range(size))

    def test_the_choice_is_a_pure_function_of_the_arguments(self, sampler: BatchSampler) -> None:
        first = sampler.choose(self.pool(60), 16, generator(3))
        np.testing.assert_array_equal(sampler.choose(self.pool(60), 16, generator(3)), first)
