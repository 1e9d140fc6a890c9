"""Conformance tests for searchers."""
# ruff: noqa: S101

import math

import pytest

from costmodels.base import CostModel
from costmodels.random import RandomModel
from mallorn.core.outcomes import Outcome
from searchers.base import Searcher, Trial
from searchers.simulate_search import trained
from searchers.space import Candidate
from searchers.synthetic_space import SyntheticSpace
from searchers.testing.candidate_checks import (
    SEEDS,
    PartitionedSpace,
    TinySpace,
    assert_well_formed,
    generator,
)


class SearcherTestCase:
    """Tests of the contract on small spaces. Subclasses define the fixture `searcher`."""

    @pytest.fixture
    def searcher(self) -> Searcher:
        raise NotImplementedError

    @pytest.fixture
    def space(self) -> SyntheticSpace:
        return SyntheticSpace(64, 64, 64)

    @pytest.fixture
    def history(self, space: SyntheticSpace) -> list[Trial]:
        candidates = dict.fromkeys(space.sample(generator(99), 40))
        return [space.measure(candidate) for candidate in candidates]

    @pytest.fixture(params=["without a model", "with a model"])
    def model(self, request: pytest.FixtureRequest, space: SyntheticSpace) -> CostModel | None:
        if request.param == "without a model":
            return None
        return trained(space, [], RandomModel, seed=1)

    @pytest.mark.parametrize(("count", "seed"), list(zip([1, 16, 64], SEEDS, strict=True)))
    def test_proposals_are_distinct_valid_and_new(
        self,
        searcher: Searcher,
        space: SyntheticSpace,
        history: list[Trial],
        model: CostModel | None,
        count: int,
        seed: int,
    ) -> None:
        proposals = [p.candidate for p in searcher.propose(space, history, model, count, generator(seed))]
        assert len(proposals) == len(set(proposals)) == count
        assert all(space.valid(proposals))
        assert not set(proposals) & {trial.candidate for trial in history}
        for candidate in proposals:
            assert_well_formed(space, candidate)

    def test_proposals_are_a_pure_function_of_the_arguments(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        history_copy = list(history)
        first = searcher.propose(space, history, model, 16, generator(1))
        searcher.propose(space, history[:5], model, 8, generator(2))
        assert searcher.propose(space, history, model, 16, generator(1)) == first
        assert searcher.propose(SyntheticSpace(64, 64, 64), history, model, 16, generator(1)) == first
        assert history == history_copy

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

    def test_inner_factors_of_a_proposed_tile_multiply_to_what_the_tile_demands(
        self, searcher: Searcher, model: CostModel | None
    ) -> None:
        space = PartitionedSpace()
        candidates = dict.fromkeys(space.sample(generator(7), 24))
        history = [Trial(candidate, Outcome.OK, 1.0 + sum(candidate.decisions)) for candidate in candidates]
        proposals = searcher.propose(space, history, model, 16, generator(0))
        assert len(proposals) == 16
        for proposal in proposals:
            assert_well_formed(space, proposal.candidate)

    def test_nothing_is_proposed_when_nothing_is_wanted(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        assert searcher.propose(space, history, model, 0, generator(0)) == []

    def test_every_proposal_has_an_origin(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        for proposal in searcher.propose(space, history, model, 32, generator(0)):
            assert proposal.origin
            assert proposal.predicted is None or math.isfinite(proposal.predicted)
            assert type(proposal.predicted) in (float, type(None))
