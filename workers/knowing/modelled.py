"""Answers by the machine alone, at hand or not: the constructor's first guesses, and a model's choice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from costmodels.base import CostModel
from mallorn.core.names import resolve
from mallorn.core.values.report import Source, Sure
from workers.knowing.answer import Answer, Knowledge, Question
from workers.search.base import DEFAULT, Searcher
from workers.search.fill import Filter, pending, take
from workers.search.pooled import score

FOUND: Final = 16  # proposals, beside the first guesses


class Constructed(Knowledge):
    """The space's defaults, best guess first."""

    def __call__(self, session: Session, question: Question) -> Iterator[Answer]:
        because = "constructed for what the machine computes and moves"
        for candidate in question.space.defaults():
            yield Answer(candidate, Source.CONSTRUCTED, because, Sure.GUESSED)


@dataclass(frozen=True)
class Modelled(Knowledge):
    """Nothing, unless the job's cost model needs no measurements (`draft`, `tuna`)."""

    cost_model: str
    search: str

    def __call__(self, session: Session, question: Question) -> Iterator[Answer]:
        kind: type[CostModel] = resolve("cost_model", self.cost_model)
        if not kind.untaught:
            return
        space, model = question.space, kind.made_for(question.space.machine)
        guesses = take(Filter(space, ()), space.defaults(), FOUND, DEFAULT)
        searcher: Searcher = resolve("search", self.search)(None)
        found = searcher.propose(space, pending(guesses), model, FOUND, np.random.default_rng(0))
        candidates = [proposal.candidate for proposal in (*guesses, *found)]
        liked = np.argsort(-score(space, model, candidates).prediction.mean, kind="stable")
        because = f"what {self.cost_model} expects to be fastest on this machine, of what {self.search} found"
        for at in liked:
            yield Answer(candidates[at], Source.MODELLED, because, Sure.GUESSED)
