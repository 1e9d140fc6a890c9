"""Answers from measurements: of the same workload, or of the nearest workloads of the same kind."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from math import exp2, log2

from sqlalchemy.orm import Session

from db.repositories.measuring_contexts import Contexts, differ, programs_beside
from db.repositories.sketches import Sketches
from db.repositories.targets import Targets
from db.repositories.trials import Trials
from db.repositories.workloads import Workloads
from db.tables import Context, Workload
from mallorn.core.target_distance import distance
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Source, Sure
from mallorn.core.values.trial import Trial
from searchers.adapt_candidate_to_shape import carry
from workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery

FEW = 3  # of a context
NEIGHBOURS = 4
FEW_NEAR = 2
MOST_NEAR = 2 * FEW_NEAR  # of other contexts
CLOSE = 1.0  # doublings, over all loops together: a schedule is likely to do as well there
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


class SimilarWorkload(AnswerSource):
    """Workloads with the same loops in other sizes, the nearest first; of the target, then of its kin."""

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        asked = question.workload
        alike = Workloads(session).of_structure(asked.structure, question.owner)
        far = [(apart(asked, other), other) for other in alike if other.id != asked.id]
        nearest = sorted(far, key=lambda pair: (pair[0], pair[1].id))[:NEIGHBOURS]
        neighbours = [pair for pair in nearest if pair[0] <= CLOSE]
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
    here = [] if own is None else Trials(session).best(neighbour.id, target_id, FEW_NEAR, own)
    elsewhere = islice(ranked(session, question, neighbour.id, target_id, FEW_NEAR), MOST_NEAR)
    known = [*((trial, "here") for trial in here), *elsewhere]
    made_of = Sketches(session).by_key({trial.candidate.sketch for trial, _ in known})
    for trial, conditions in known:
        sketch = made_of[trial.candidate.sketch]
        candidate = carry(trial.candidate, sketch, question.space.sketches)
        if candidate is not None:
            times_apart = f"{exp2(far):.1f} times apart{words}"
            because = f"carried from the same loops in sizes {times_apart}, timed {conditions}"
            yield ZeroShotAnswer(candidate, Source.NEAR, because, Sure.LIKELY)
