"""A base chooses: among first guesses and what was carried, and, asked for more, among thousands."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from costmodels.base import CostModel
from costmodels.views import DECISIONS
from db.repositories.cost_models import CostModels
from mallorn.core.values.report import Source, Sure
from workers.knowing.answer import Answer, Knowledge, Question
from workers.round.bases import own_bases
from workers.round.models import model_of
from workers.search.pooled import score
from workers.search.space import Candidate, Space

PARENTS, GENERATIONS = 32, 3


@dataclass(frozen=True)
class Learned(Knowledge):
    """The newest active base of the operator on the target that reads decisions.

    Kin is not asked: on recordings it chose worse than the constructor. `considered` candidates are drawn and
    bred beside those of `others`; none: it only orders these.
    """

    others: Sequence[Knowledge]
    considered: int = 0

    def __call__(self, session: Session, question: Question) -> Iterator[Answer]:
        heads = own_bases(session, question.workload.op, question.target_id)
        for head in heads:
            model = model_of(CostModels(session).get(head.id))
            if model.view == DECISIONS.name:
                known = [answer.candidate for each in self.others for answer in each(session, question)]
                because = f"what {head.name} likes best, which learned from {head.rows:,} measurements"
                yield from _ranked(question.space, model, self._pool(question.space, model, known), because)
                return

    def _pool(self, space: Space, model: CostModel, known: Sequence[Candidate]) -> list[Candidate]:
        """What is known, and what can be bred from it and from chance."""
        pool = dict.fromkeys(known)
        if self.considered:
            rng = np.random.default_rng(0)
            each = self.considered // (GENERATIONS + 1)
            pool.update(dict.fromkeys(space.sample(rng, each)))
            for _ in range(GENERATIONS):
                best = _order(space, model, list(pool))[:PARENTS]
                parents = [best[at] for at in rng.integers(len(best), size=each)]
                pool.update(dict.fromkeys(space.mutate_all(rng, parents)))
        return list(pool)


def _order(space: Space, model: CostModel, pool: Sequence[Candidate]) -> list[Candidate]:
    """By what each is at least worth: of thousands, those that a model is wrong about look best."""
    found = score(space, model, pool).prediction
    liked = np.argsort(found.std - found.mean, kind="stable")
    return [pool[at] for at in liked]


def _ranked(space: Space, model: CostModel, pool: Sequence[Candidate], because: str) -> Iterator[Answer]:
    for candidate in _order(space, model, pool):
        yield Answer(candidate, Source.LEARNED, because, Sure.LIKELY)
