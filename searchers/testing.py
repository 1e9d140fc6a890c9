"""Conformance tests for searchers: subclass `SearcherTestCase` and define its fixture."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.random import RandomModel
from mallorn.searchers.base import Searcher, Trial
from mallorn.searchers.decision_space import DecisionSpace
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch, Space
from mallorn.searchers.synthetic_space import SyntheticSpace, fit_on_history

# ruff: noqa: S101


SEEDS = (0, 1, 2)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def split_by_choice(sketch: Sketch, decisions: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the decisions of each choice of a sketch."""
    return [tuple(decisions[columns]) for columns, _ in sketch.decision_slices]


def assert_well_formed(space: Space, candidate: Candidate) -> None:
    """Assert that factors have the right product and limits, and values are allowed ints."""
    sketch = space.by_key[candidate.sketch]
    assert len(candidate.decisions) == sketch.decision_count
    assert all(type(value) is int for value in candidate.decisions)
    for choice, part in zip(sketch.choices, split_by_choice(sketch, candidate.decisions), strict=True):
        if choice.kind is ChoiceKind.TILE:
            assert math.prod(part) == choice.extent
            assert all(factor > 0 for factor in part)
            assert not choice.limit or part[-1] <= choice.limit
            place, multiple = choice.inner_multiple or (0, 1)
            assert math.prod(part[place:]) % multiple == 0
        else:
            assert part[0] in choice.values


class TinySpace(DecisionSpace):
    """A space of ten candidates, which are valid if the first factor is odd or the index 1."""

    def __init__(self) -> None:
        choices = (
            Choice(ChoiceKind.TILE, 2, extent=12, limit=6),
            Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=(0, 16), weights=(0.5, 0.5)),
        )
        super().__init__([Sketch("tiny", "", choices)], [1.0], assume_typical_cpu(cores=2, lanes=4))

    def everything(self) -> set[Candidate]:
        return {Candidate("tiny", (12 // f, f, i)) for f in (1, 2, 3, 4, 6) for i in (0, 1)}

    def possible(self) -> set[Candidate]:
        return {candidate for candidate in self.everything() if self.valid([candidate])[0]}

    def defaults(self) -> list[Candidate]:
        return [Candidate("tiny", (12, 1, 0)), Candidate("tiny", (3, 4, 0))]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [c.decisions[0] % 2 == 1 or c.decisions[2] == 1 for c in candidates]


class PartitionedSpace(DecisionSpace):
    """A space of tiles with an `inner_multiple`; every well-formed candidate is valid."""

    def __init__(self) -> None:
        tiles = [Choice(ChoiceKind.TILE, 5, extent, inner_multiple=(3, 4)) for extent in (32, 24)]
        super().__init__(
            [Sketch("partitioned", "", tuple(tiles))], [1.0], assume_typical_cpu(cores=2, lanes=4)
        )

    def defaults(self) -> list[Candidate]:
        return [Candidate("partitioned", (8, 1, 1, 4, 1, 6, 1, 1, 4, 1))]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


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
        return fit_on_history(space, [], RandomModel, seed=1)

    @pytest.mark.parametrize(("count", "seed"), [(1, 0), (64, 2)])
    def test_proposals_are_distinct_valid_new_and_have_an_origin(
        self,
        searcher: Searcher,
        space: SyntheticSpace,
        history: list[Trial],
        model: CostModel | None,
        count: int,
        seed: int,
    ) -> None:
        proposals = searcher.propose(space, history, model, count, generator(seed))
        candidates = [proposal.candidate for proposal in proposals]
        assert len(candidates) == len(set(candidates)) == count
        assert all(space.valid(candidates))
        assert not set(candidates) & {trial.candidate for trial in history}
        for proposal in proposals:
            assert_well_formed(space, proposal.candidate)
            assert proposal.origin
            assert proposal.predicted is None or math.isfinite(proposal.predicted)
            assert type(proposal.predicted) in (float, type(None))

    def test_proposals_depend_on_the_arguments_only_and_on_the_generator(
        self, searcher: Searcher, space: SyntheticSpace, history: list[Trial], model: CostModel | None
    ) -> None:
        history_copy = list(history)
        first = searcher.propose(space, history, model, 16, generator(1))
        assert searcher.propose(space, history, model, 16, generator(2)) != first
        searcher.propose(space, history[:5], model, 8, generator(2))
        assert searcher.propose(SyntheticSpace(64, 64, 64), history, model, 16, generator(1)) == first
        assert history == history_copy

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
