"""The nearest workloads of the same kind: their fastest schedules carried to this shape."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import exp2, log2

from sqlalchemy.orm import Session

from db.repositories.sketches import Sketches
from db.repositories.trials import Trials
from db.repositories.workloads import Workloads
from db.tables import Workload
from mallorn.core.values.finish_report import Source, Sure
from searchers.adapt_candidate_to_shape import carry
from workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery
from workers.zero_shot.same_workload import kin_of, ranked, words_of

NEIGHBOURS = 4
FEW = 2
MOST = 2 * FEW  # of other contexts
CLOSE = 1.0  # doublings, over all loops together: a schedule is likely to do as well there


@dataclass(frozen=True)
class SimilarWorkload(AnswerSource):
    """Workloads with the same loops in other sizes, the nearest first; of the target, then of its kin."""

    within: float = CLOSE

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        asked = question.workload
        alike = Workloads(session).of_structure(asked.structure, question.owner)
        far = [(apart(asked, other), other) for other in alike if other.id != asked.id]
        nearest = sorted(far, key=lambda pair: (pair[0], pair[1].id))[:NEIGHBOURS]
        neighbours = [pair for pair in nearest if pair[0] <= self.within]
        places = [
            (question.target_id, ""),
            *((at, f" on {words_of(target)}") for at, target in kin_of(session, question)),
        ]
        for target_id, words in places:
            for doublings, neighbour in neighbours:
                yield from _carried(session, question, neighbour, doublings, target_id, words)


def apart(one: Workload, other: Workload) -> float:
    """How many doublings of extents lie between two workloads of the same loops."""
    pairs = zip(one.features["extents"], other.features["extents"], strict=False)
    return sum(abs(log2(a / b)) for a, b in pairs if a and b)


def _carried(
    session: Session, question: ZeroShotQuery, neighbour: Workload, far: float, target_id: int, words: str
) -> Iterator[ZeroShotAnswer]:
    own = question.context_id
    here = [] if own is None else Trials(session).best(neighbour.id, target_id, FEW, own)
    elsewhere = islice(ranked(session, question, neighbour.id, target_id, FEW), MOST)
    known = [*((trial, "here") for trial in here), *elsewhere]
    made_of = Sketches(session).by_key({trial.candidate.sketch for trial, _ in known})
    for trial, conditions in known:
        sketch = made_of[trial.candidate.sketch]
        candidate = carry(trial.candidate, sketch, question.space.sketches)
        if candidate is not None:
            times_apart = f"{exp2(far):.1f} times apart{words}"
            because = f"carried from the same loops in sizes {times_apart}, timed {conditions}"
            yield ZeroShotAnswer(
                candidate, Source.NEAR, because, Sure.LIKELY if far <= CLOSE else Sure.GUESSED
            )
