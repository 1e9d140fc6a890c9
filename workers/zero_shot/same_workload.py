"""The fastest that was measured of the very same workload: here, elsewhere, or on the nearest kin."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy.orm import Session

from db.repositories.measuring_contexts import Contexts, differ, programs_beside
from db.repositories.sketches import Sketches
from db.repositories.targets import Targets
from db.repositories.trials import Trials
from db.tables import Context
from mallorn.core.target_distance import distance
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Source, Sure
from mallorn.core.values.trial import Trial
from workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery

FEW = 3
Timed = tuple[Trial, str]  # with the conditions under which it was timed, in words


class SameWorkload(AnswerSource):
    """Times of the job's own context come first, then of other contexts, then of the target's kin."""

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        trials, workload_id = Trials(session), question.workload.id
        target_id, context_id = question.target_id, question.context_id
        here = [] if context_id is None else trials.best(workload_id, target_id, FEW, context_id)
        for trial in here:
            yield _answer(session, trial, "the fastest that was measured here", Sure.MEASURED)
        for trial, conditions in ranked(session, question, workload_id, target_id):
            yield _answer(session, trial, f"among the fastest that were timed {conditions}", Sure.LIKELY)
        for kin_id, kin in kin_of(session, question):
            for trial, conditions in ranked(session, question, workload_id, kin_id):
                because = f"among the fastest on {words_of(kin)}, timed {conditions}"
                yield _answer(session, trial, because, Sure.LIKELY, timed=False)


def ranked(
    session: Session, question: ZeroShotQuery, workload_id: int, target_id: int, few: int = FEW
) -> Iterator[Timed]:
    """Yield the fastest of a workload in each context but the question's own.

    Times of two contexts do not compare. So the first of each come before the second of each, context by
    context, within three groups: timed outside a model, inside one, and beside other programs. The groups of
    the question's host class and threads go before all others, of these its builder's. Other datasets follow.
    """
    own = None if question.context_id is None else Contexts(session).get(question.context_id)

    def far(context: Context) -> tuple[bool, bool, int]:
        programs, others = programs_beside(context), (True, True) if own is None else differ(context, own)
        return *others, -1 if programs is None else programs

    for imported in (False, True):
        known = Contexts(session).of_workload(workload_id, target_id, imported=imported)
        others = sorted((each for each in known if own is None or each.id != own.id), key=far)
        for _, near in groupby(others, key=far):
            yield from _by_rank(session, list(near), (workload_id, target_id, few), imported)


def _by_rank(
    session: Session, contexts: Sequence[Context], which: tuple[int, int, int], imported: bool
) -> Iterator[Timed]:
    read = Trials(session).best_brought if imported else Trials(session).best
    rows: dict[int, Sequence[Trial]] = {}
    for rank in range(which[2]):
        for context in contexts:
            if context.id not in rows:
                rows[context.id] = read(*which, context.id)
            if rank < len(rows[context.id]):
                yield rows[context.id][rank], _words(context, imported)


def _words(context: Context, imported: bool) -> str:
    programs = programs_beside(context)
    where = "alone" if programs is None else "inside a model"
    beside = f" beside {programs} other programs" if programs else ""
    host = (
        f"on {context.host_class}, {context.threads} threads, TVM {context.built_by or context.tvm_version}"
    )
    return f"{where}{beside} {host}{', in another dataset' if imported else ''}"


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


def _answer(session: Session, trial: Trial, because: str, sure: Sure, timed: bool = True) -> ZeroShotAnswer:
    """Return an answer with the sketch that was measured: some of stock's are not in our space, and rebuild.

    A time counts where it was taken on this target.
    """
    key = trial.candidate.sketch
    sketch = Sketches(session).by_key({key})[key]
    expected_us = trial.latency_us if timed else None
    return ZeroShotAnswer(trial.candidate, Source.SAME, because, sure, expected_us, sketch)
