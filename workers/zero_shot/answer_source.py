"""Interface of sources that propose candidates without measuring, and tell their reasons."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Confidence, Source
from mallorn.db.tables import Job, Workload
from mallorn.searchers.space import Candidate, Sketch, Space


@dataclass(frozen=True, slots=True)
class ZeroShotQuery:
    """A task for which a candidate is wanted without measuring, and its job."""

    job: Job  # only rows that it and its owner may read are used
    workload: Workload
    target: Target
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


# Yields candidates for a task that are found without measuring, the best first. They fit a
# sketch, but may be invalid: the caller checks whether they can be rebuilt.
AnswerSource = Callable[[Session, ZeroShotQuery], Iterator[ZeroShotAnswer]]


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
