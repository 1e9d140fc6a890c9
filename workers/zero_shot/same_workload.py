"""The fastest that was measured of the very same workload: here, elsewhere, or on the nearest kin."""

from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from db.repositories.sketches import Sketches
from db.repositories.targets import Targets
from db.repositories.trials import Trials
from mallorn.core.target_distance import distance
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Source, Sure
from mallorn.core.values.trial import Trial
from workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery

FEW = 3


class SameWorkload(AnswerSource):
    """Times of the job's own context come first, then of other hosts, then of the target's kin."""

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        trials, workload_id = Trials(session), question.workload.id
        target_id, context_id = question.target_id, question.context_id
        here = [] if context_id is None else trials.best(workload_id, target_id, FEW, context_id)
        yield from _answers(session, here, "the fastest that was measured here", Sure.MEASURED)
        elsewhere = _by_time(trials, workload_id, target_id)
        yield from _answers(session, elsewhere, "the fastest that another host measured", Sure.LIKELY)
        for kin_id, kin in kin_of(session, question):
            found = _by_time(trials, workload_id, kin_id)
            yield from _answers(session, found, f"the fastest on {words_of(kin)}", Sure.LIKELY, timed=False)


def _by_time(trials: Trials, workload_id: int, target_id: int) -> list[Trial]:
    """Whoever measured them; what other datasets brought is among them."""
    found = [*trials.best(workload_id, target_id, FEW), *trials.best_brought(workload_id, target_id, FEW)]
    return sorted(found, key=lambda trial: trial.latency_us or 0.0)


def kin_of(session: Session, question: ZeroShotQuery) -> Sequence[tuple[int, Target]]:
    """Other targets whose schedules are cut for the same vectors and cores, the nearest first."""
    others = [(row.id, Target(row.text)) for row in Targets(session).list() if row.id != question.target_id]
    near = [(distance(question.target, target), at, target) for at, target in others]
    alike = [(far, at, target) for far, at, target in near if far is not None and far.cuts_alike]
    return [(at, target) for _, at, target in sorted(alike, key=lambda each: each[:2])]


def words_of(target: Target) -> str:
    """A target as an answer names it."""
    named = target.attrs.get("mcpu") or target.attrs.get("arch") or target.kind
    return f"{named} with {target.num_cores} cores" if target.is_cpu else named


def _answers(
    session: Session, found: Sequence[Trial], because: str, sure: Sure, timed: bool = True
) -> Iterator[ZeroShotAnswer]:
    """With the sketches that were measured: stock's are not all in our space, and rebuild nevertheless.

    A time counts where it was taken on this target.
    """
    sketches = Sketches(session).by_key({trial.candidate.sketch for trial in found})
    for trial in found:
        expected_us = trial.latency_us if timed else None
        sketch = sketches[trial.candidate.sketch]
        yield ZeroShotAnswer(trial.candidate, Source.SAME, because, sure, expected_us, sketch)
