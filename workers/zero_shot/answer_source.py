"""The seam of what is known: a candidate, and what it rests on."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from db.tables import Workload
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Source, Sure
from searchers.space import Candidate, Sketch, Space


@dataclass(frozen=True, slots=True)
class ZeroShotQuery:
    """A task that nobody is going to measure."""

    owner: str  # who asks: what others keep to themselves is no answer
    workload: Workload
    target: Target
    target_id: int
    context_id: int | None  # that of the job, where it is known
    space: Space


@dataclass(frozen=True, slots=True)
class ZeroShotAnswer:
    """A candidate, valid or not, and why it."""

    candidate: Candidate
    source: Source
    because: str  # in words, without the candidate
    sure: Sure
    expected_us: float | None = None  # None: there is no figure that one could stand by
    sketch: Sketch | None = None  # as whoever measured it had it; None: that of the space


class AnswerSource(ABC):
    """One source of answers.

    Contract: candidates are well-formed in the question's space; whether one can be rebuilt is for who asks.
    """

    @abstractmethod
    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        """Its answers, best first."""


def in_order(
    sources: Sequence[AnswerSource], ask: Callable[[AnswerSource], Iterable[ZeroShotAnswer]]
) -> Iterator[ZeroShotAnswer]:
    """The answers of the first source, then of the next, each candidate once; none is asked too early."""
    seen: set[Candidate] = set()
    for source in sources:
        for answer in ask(source):
            if answer.candidate not in seen:
                seen.add(answer.candidate)
                yield answer
