"""Sources of candidates that models choose: Roller, analytic and pretrained cost models."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from mallorn.core.registry import resolve
from mallorn.core.states import OFF
from mallorn.core.values.finish_report import Confidence, Source
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.views import DECISIONS
from mallorn.db.repositories.cost_models import CostModels
from mallorn.searchers.base import DEFAULT, Searcher
from mallorn.searchers.fill_round import Filter, as_pending_trials, propose_first_valid
from mallorn.searchers.pooled_searcher import score
from mallorn.workers.round.select_cost_model import model_of, own_bases
from mallorn.workers.zero_shot.answer_source import ZeroShotAnswer, ZeroShotQuery
from mallorn.workers.zero_shot.measured_workloads import propose_from_similar_workloads

FOUND: Final = 16  # proposals of the searcher, and as many first guesses


def propose_from_roller(_session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
    """Propose the space's default candidates, in the order of Roller's ranking."""
    because = "constructed for what the machine computes and moves"
    for candidate in question.space.defaults():
        yield ZeroShotAnswer(candidate, Source.CONSTRUCTED, because, Confidence.GUESSED)


def rank_by_untrained_model(
    _session: Session, question: ZeroShotQuery, cost_model: str, search: str
) -> Iterator[ZeroShotAnswer]:
    """Rank default and searched candidates by the job's cost model, if it is one that needs
    no training (`draft` or `tuna`)."""
    kind: type[CostModel] = resolve("cost_model", cost_model)
    if not kind.untaught:
        return
    space, model = question.space, kind.made_for(question.space.machine)
    guesses = propose_first_valid(Filter(space, ()), space.defaults(), FOUND, DEFAULT)
    searcher: Searcher = resolve("search", search)(None)
    rng = np.random.default_rng(0)
    proposals = searcher.propose(space, as_pending_trials(guesses), model, FOUND, rng)
    candidates = [proposal.candidate for proposal in (*guesses, *proposals)]
    ranking = np.argsort(-score(space, model, candidates).prediction.mean, kind="stable")
    because = f"what {cost_model} expects to be fastest on this machine, of what {search} found"
    for index in ranking:
        yield ZeroShotAnswer(candidates[index], Source.MODELLED, because, Confidence.GUESSED)


def rank_by_pretrained_model(session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
    """Rank the candidates of similar workloads and of Roller by the cost model pretrained
    for the operator and target.

    Models of similar targets are not used, because on stored measurements they chose worse
    than Roller. Nor are thousands of candidates sampled, because the one that a model likes
    best of so many is often misjudged (docs/knowledge.md).
    """
    if question.job.dataset == OFF:
        return
    for head in own_bases(session, question.workload.op, question.job.target_id):
        model = model_of(CostModels(session).get(head.id))
        if model.view == DECISIONS.name:
            sources = propose_from_similar_workloads, propose_from_roller
            answers = [a.candidate for source in sources for a in source(session, question)]
            because = f"what {head.name} likes best, which learned from {head.rows:,} measurements"
            distinct = list(dict.fromkeys(answers))
            scores = score(question.space, model, distinct).prediction.mean
            for index in np.argsort(-scores, kind="stable"):
                yield ZeroShotAnswer(distinct[index], Source.LEARNED, because, Confidence.LIKELY)
            return
