"""Searchers that learn a policy: what they look at gets better, at no more work for a longer history."""

from collections.abc import Sequence

import numpy as np
import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.values.machine import assume_typical_cpu
from mallorn.costmodels.base import Matrix, Prediction
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn.searchers.algorithms.reinforce import Reinforce
from mallorn.searchers.base import Trial
from mallorn.searchers.decision_space import DecisionSpace
from mallorn.searchers.learning.exploring_learner import MOST, Learner, sample_history
from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.space import Candidate, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace, best_us, fit_on_history
from mallorn_research.searchers.beam_search import Beam
from mallorn_research.searchers.felix import Felix
from mallorn_research.searchers.monte_carlo_tree_search import Mcts
from mallorn_research.searchers.ppo import Ppo
from mallorn_research.searchers.qlearning import QLearning
from mallorn_research.searchers.sample_decision_model import Generator

LEARNERS: list[type[Learner]] = [QLearning, Reinforce, Ppo, Mcts, Beam, Generator, Felix]


class Counting(RandomModel):
    """Counts the rows that it is asked about."""

    rows = 0

    def predict(self, features: Matrix) -> Prediction:
        self.rows += len(features)
        return super().predict(features)


class Rigid(DecisionSpace):
    """One sketch that leaves nothing to decide."""

    def __init__(self) -> None:
        super().__init__([Sketch("rigid", "", ())], [1.0], assume_typical_cpu(cores=2, lanes=4))

    def defaults(self) -> list[Candidate]:
        return []

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [True] * len(candidates)


def median_us(space: SyntheticSpace, candidates: Sequence[Candidate]) -> float:
    """Of those that can be measured at all."""
    latency = space.latency_us(candidates)
    return float(np.median(latency[np.isfinite(latency)]))


@pytest.fixture
def space() -> SyntheticSpace:
    return SyntheticSpace(128, 128, 64)


@pytest.fixture
def history(space: SyntheticSpace) -> list[Trial]:
    return [space.measure(c) for c in dict.fromkeys(space.sample(np.random.default_rng(0), 120))]


@pytest.mark.parametrize("kind", LEARNERS)
def test_what_it_looks_at_gets_better_as_it_learns(
    kind: type[Learner], space: SyntheticSpace, history: list[Trial]
) -> None:
    model = fit_on_history(space, history, XGBoost, seed=0)
    pool = list(kind(considered=2048).pool(Request(space, history, model, 64, np.random.default_rng(0))))
    first, last = pool[:600], pool[-600:]
    assert median_us(space, last) < 0.5 * median_us(space, first)
    assert len(pool) <= 2048


@pytest.mark.parametrize("kind", LEARNERS)
def test_in_three_rounds_it_finds_better_than_what_it_learnt_from(
    kind: type[Learner], space: SyntheticSpace, history: list[Trial]
) -> None:
    model = fit_on_history(space, history, XGBoost, seed=0)
    rounds = [
        kind(considered=2048).propose(space, history, model, 32, np.random.default_rng(seed))
        for seed in range(3)
    ]
    found = space.latency_us([proposal.candidate for proposals in rounds for proposal in proposals])
    assert np.nanmin(found) < 0.95 * best_us(history)


@pytest.mark.parametrize("kind", LEARNERS)
def test_without_a_model_it_learns_from_the_history(
    kind: type[Learner], space: SyntheticSpace, history: list[Trial]
) -> None:
    proposals = kind(considered=1024).propose(space, history, None, 32, np.random.default_rng(1))
    assert median_us(space, [p.candidate for p in proposals]) < 0.5 * median_us(
        space, [trial.candidate for trial in history]
    )


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_long_history_asks_the_model_no_more_than_a_short_one(kind: type[Learner]) -> None:
    space = SyntheticSpace(256, 256, 256)
    drawn = dict.fromkeys(space.sample(np.random.default_rng(0), 2000))
    trials = [space.measure(candidate) for candidate in drawn]
    asked = []
    for history in (trials[:200], trials):
        model = Counting()
        kind(considered=1024).propose(space, history, model, 64, np.random.default_rng(0))
        asked.append(model.rows)
    assert asked[1] < 1.1 * asked[0]


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_space_without_freedom_comes_to_its_end(kind: type[Learner]) -> None:
    space = Rigid()
    history = [Trial(Candidate("rigid", ()), Outcome.OK, 3.0)]
    assert kind().propose(space, history, None, 4, np.random.default_rng(0)) == []
    first = kind().propose(space, [], RandomModel(), 4, np.random.default_rng(0))
    assert [p.candidate for p in first] == [Candidate("rigid", ())]


def test_a_sample_is_bounded_and_keeps_the_best_and_the_newest() -> None:
    space = SyntheticSpace(256, 256, 256)
    drawn = dict.fromkeys(space.sample(np.random.default_rng(0), 1000))
    history = [space.measure(candidate) for candidate in drawn]
    sample = sample_history(history)
    assert len(sample.candidates) == MOST
    assert list(sample.label) == sorted(sample.label, reverse=True)
    assert sample.label[0] == 0
    assert {trial.candidate for trial in history[-60:]} <= set(sample.candidates)
