"""A model whose view needs a compiler chooses among what the draft model liked, and learns from the cache."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mallorn.core.registry import REGISTRY
from mallorn.core.targets import Target
from mallorn.costmodels.base import Matrix, Prediction
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.views import STATEMENTS
from mallorn.kinds.cuda.kind import Cuda
from mallorn.searchers.base import DEFAULT
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.propose import WIDER, WIDER_WITHOUT_DRAFT, propose
from mallorn.workers.round.train_cost_model import train
from tests.fixtures.workshop import MadeUpCompiler

ROUND = 8
Lowered = tuple[str, tuple[int, ...]]


class ByFirstStatement(RandomModel):
    """Thinks that what the first statement says is the score."""

    view = "statements"
    seen: list[Matrix]

    def fit(self, features: Matrix, *args: Any, **options: Any) -> None:
        super().fit(features, *args, **options)
        type(self).seen.append(features)

    def predict(self, features: Matrix) -> Prediction:
        score = STATEMENTS.tables(features)[:, 0, 1]
        return Prediction(score, np.ones_like(score))


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> Counter[Lowered]:
    """How often each candidate was lowered; what comes out is its lanes."""
    asked = Counter[Lowered]()

    def rows(self: Any, view: str, tir: str, target: str, candidates: list[Any]) -> list[bytes]:
        asked.update((sketch, tuple(decisions)) for sketch, decisions in candidates)
        return [_packed(decisions) for _, decisions in candidates]

    monkeypatch.setattr(MadeUpCompiler, "on_compute_lowered_features", rows, raising=False)
    monkeypatch.setitem(REGISTRY["cost_model"], "lowered", f"{__name__}:ByFirstStatement")
    monkeypatch.setattr(ByFirstStatement, "seen", [], raising=False)
    return asked


def _packed(decisions: Any) -> bytes:
    table = np.zeros(STATEMENTS.shape, dtype="<f4")
    table[0, :2] = 1, lanes(decisions)
    return table.tobytes()


def lowers(decisions: Any) -> bool:
    """Half of the candidates, whatever they are like."""
    return sum(decisions) % 2 == 0


def lanes(decisions: Any) -> int:
    return int(decisions[7])  # the innermost factor of the second axis


def test_it_learns_from_what_was_lowered_once(workshop, lowered):
    job = workshop.job(("w0",), cost_model="lowered", round_size=ROUND)
    train(workshop, job, workshop.closed_round(job).task_id)
    assert [len(features) for features in ByFirstStatement.seen] == [ROUND]
    assert lowered.total() == ROUND
    train(workshop, job, workshop.closed_round(job).task_id)
    assert set(lowered.values()) == {1}


def test_it_takes_the_best_of_what_the_draft_model_liked(workshop, lowered):
    job = workshop.job(("w0",), cost_model="lowered", round_size=ROUND)
    train(workshop, job, workshop.closed_round(job).task_id)
    lowered.clear()
    second = workshop.closed_round(job)
    assert ROUND < lowered.total() <= WIDER * ROUND
    with workshop.database.session() as session:
        context = load_round(session, second.id)
    slots, proposals = propose(FeatureLookup(workshop.database, workshop.compiler), context)
    taken = [lanes(slot.candidate.decisions) for slot in slots]
    assert taken == sorted((lanes(decisions) for _, decisions in lowered), reverse=True)[:ROUND]
    assert [proposal.predicted for proposal in proposals] == taken


def test_on_a_gpu_a_first_round_is_defaults_and_what_an_unfitted_model_likes(workshop, lowered, monkeypatch):
    monkeypatch.setattr(Target, "measured_by", Cuda())
    monkeypatch.setattr(ByFirstStatement, "orders_unfitted", True)
    job = workshop.job(("w0",), cost_model="lowered", round_size=ROUND)
    first = workshop.closed_round(job)
    with workshop.database.session() as session:
        context = load_round(session, first.id)
    _, proposals = propose(FeatureLookup(workshop.database, workshop.compiler), context)
    guesses = [proposal for proposal in proposals if proposal.origin.endswith(DEFAULT)]
    liked = [proposal.predicted for proposal in proposals if proposal.predicted is not None]
    assert 0 < len(guesses) <= ROUND // 2
    assert len(guesses) + len(liked) == len(proposals) == ROUND
    assert liked == sorted(liked, reverse=True)
    assert len(liked) < lowered.total() <= WIDER_WITHOUT_DRAFT * ROUND


def test_what_cannot_be_lowered_comes_last_and_is_not_learned_from(workshop, lowered, monkeypatch):
    def rows(self: Any, view: str, tir: str, target: str, candidates: list[Any]) -> list[str | None]:
        return [_packed(decisions) if lowers(decisions) else None for _, decisions in candidates]

    monkeypatch.setattr(MadeUpCompiler, "on_compute_lowered_features", rows)
    job = workshop.job(("w0",), cost_model="lowered", round_size=48)  # half of it is enough to fit
    done = workshop.closed_round(job)
    with workshop.database.session() as session:
        first = propose(FeatureLookup(workshop.database, workshop.compiler), load_round(session, done.id))[0]
    train(workshop, job, done.task_id)
    lowered_ones = [slot.candidate for slot in first if lowers(slot.candidate.decisions)]
    assert 0 < len(lowered_ones) < len(first)
    assert [len(features) for features in ByFirstStatement.seen] == [len(lowered_ones)]
    with workshop.database.session() as session:
        context = load_round(session, workshop.closed_round(job).id)
    _, proposals = propose(FeatureLookup(workshop.database, workshop.compiler), context)
    known = [proposal.predicted is not None for proposal in proposals]
    assert known == sorted(known, reverse=True)
