"""A base chooses among first guesses and what was carried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from costmodels.views import DECISIONS
from db.repositories.cost_models import CostModels
from mallorn.core.values.report import Source, Sure
from workers.knowing.answer import Answer, Knowledge, Question
from workers.round.bases import own_bases
from workers.round.models import model_of
from workers.search.pooled import score


@dataclass(frozen=True)
class Learned(Knowledge):
    """The newest active base of the operator on the target that reads decisions orders what others answer.

    Kin is not asked: on recordings it chose worse than the constructor. Nor are thousands of candidates drawn
    for it: what a base likes best of those is often what it is wrong about (docs/knowledge.md).
    """

    others: Sequence[Knowledge]

    def __call__(self, session: Session, question: Question) -> Iterator[Answer]:
        for head in own_bases(session, question.workload.op, question.target_id):
            model = model_of(CostModels(session).get(head.id))
            if model.view == DECISIONS.name:
                told = [answer.candidate for each in self.others for answer in each(session, question)]
                known = list(dict.fromkeys(told))
                liked = np.argsort(-score(question.space, model, known).prediction.mean, kind="stable")
                because = f"what {head.name} likes best, which learned from {head.rows:,} measurements"
                for at in liked:
                    yield Answer(known[at], Source.LEARNED, because, Sure.LIKELY)
                return
