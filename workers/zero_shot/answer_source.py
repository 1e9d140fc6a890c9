"""Sources that propose candidates without measuring, and tell their reasons: the interface,
and models."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from mallorn.core.registry import resolve
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Confidence, Source
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.views import DECISIONS
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.tables import Workload
from mallorn.searchers.base import DEFAULT, Searcher
from mallorn.searchers.fill_batch import Filter, as_pending_trials, propose_first_valid
from mallorn.searchers.pooled_searcher import score
from mallorn.searchers.space import Candidate, Sketch, Space
from mallorn.workers.round.select_cost_model import model_of, own_bases


@dataclass(frozen=True, slots=True)
class ZeroShotQuery:
    """A task for which a candidate is wanted without measuring, and the user who asks."""

    owner: str  # the asking user; private rows of other users are not used
    workload: Workload
    target: Target
    target_id: int
    context_id: int | None  # the job's measuring context, if it has one
    space: Space


@dataclass(frozen=True, slots=True)
class ZeroShotAnswer:
    """A proposed candidate, not yet validated, and the reason for it."""

    candidate: Candidate
    source: Source
    because: str  # the reason in words, without the candidate
    sure: Confidence
    expected_us: float | None = None  # None: no reliable time is known
    sketch: Sketch | None = None  # the sketch as it was measured; None: the space's sketch


class AnswerSource(ABC):
    """A source of candidates for a task, found without measuring. The candidates fit a
    sketch, but may be invalid: the caller checks whether they can be rebuilt."""

    @abstractmethod
    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        """Yield the proposed candidates, the best first."""


def in_order(
    sources: Sequence[AnswerSource], ask: Callable[[AnswerSource], Iterable[ZeroShotAnswer]]
) -> Iterator[ZeroShotAnswer]:
    """Yield the candidates of each source in turn, without repeats. A source is asked only
    if the caller has used up the candidates of earlier ones."""
    answered: set[Candidate] = set()
    for source in sources:
        for answer in ask(source):
            if answer.candidate not in answered:
                answered.add(answer.candidate)
                yield answer


FOUND: Final = 16  # proposals of the searcher, and as many first guesses


class FromRoller(AnswerSource):
    """Proposes the space's default candidates, in the order of Roller's ranking."""

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        because = "constructed for what the machine computes and moves"
        for candidate in question.space.defaults():
            yield ZeroShotAnswer(candidate, Source.CONSTRUCTED, because, Confidence.GUESSED)


@dataclass(frozen=True)
class RankedByMachine(AnswerSource):
    """Ranks default and searched candidates by the job's cost model, if it is one that
    needs no training (`draft` or `tuna`)."""

    cost_model: str
    search: str

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        kind: type[CostModel] = resolve("cost_model", self.cost_model)
        if not kind.untaught:
            return
        space, model = question.space, kind.made_for(question.space.machine)
        guesses = propose_first_valid(Filter(space, ()), space.defaults(), FOUND, DEFAULT)
        searcher: Searcher = resolve("search", self.search)(None)
        rng = np.random.default_rng(0)
        proposals = searcher.propose(space, as_pending_trials(guesses), model, FOUND, rng)
        candidates = [proposal.candidate for proposal in (*guesses, *proposals)]
        ranking = np.argsort(-score(space, model, candidates).prediction.mean, kind="stable")
        because = f"what {self.cost_model} expects to be fastest on this machine, of what {self.search} found"
        for index in ranking:
            yield ZeroShotAnswer(candidates[index], Source.MODELLED, because, Confidence.GUESSED)


@dataclass(frozen=True)
class RankedByModel(AnswerSource):
    """Ranks other sources' candidates by the cost model pretrained for the operator and
    target.

    Models of similar targets are not used, because on stored measurements they chose worse
    than Roller. Nor are thousands of candidates sampled, because the one that a model likes
    best of so many is often misjudged (docs/knowledge.md).
    """

    sources: Sequence[AnswerSource]

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        for head in own_bases(session, question.workload.op, question.target_id):
            model = model_of(CostModels(session).get(head.id))
            if model.view == DECISIONS.name:
                answers = [a.candidate for source in self.sources for a in source(session, question)]
                because = f"what {head.name} likes best, which learned from {head.rows:,} measurements"
                distinct = list(dict.fromkeys(answers))
                scores = score(question.space, model, distinct).prediction.mean
                for index in np.argsort(-scores, kind="stable"):
                    yield ZeroShotAnswer(distinct[index], Source.LEARNED, because, Confidence.LIKELY)
                return
