"""Answers from measurements of the same workload or of the nearest similar workloads."""

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
from searchers.adapt_candidate_to_shape import adapt_candidate
from workers.zero_shot.answer_source import AnswerSource, ZeroShotAnswer, ZeroShotQuery

FEW = 3  # trials per context
NEIGHBOURS = 4
FEW_NEAR = 2
MOST_NEAR = 2 * FEW_NEAR  # trials of a neighbour from other contexts
CLOSE = 1.0  # doublings over all loops; within them a schedule is likely to perform as well
Timed = tuple[Trial, str]  # a trial and, in words, the conditions under which it was timed


class SameWorkload(AnswerSource):
    """Proposes the workload's fastest trials: the job's context, others, similar targets."""

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        trials, workload_id = Trials(session), question.workload.id
        target_id, context_id = question.target_id, question.context_id
        own_trials = [] if context_id is None else trials.best(workload_id, target_id, FEW, context_id)
        for trial in own_trials:
            yield _answer(session, trial, "the fastest that was measured here", Sure.MEASURED)
        for trial, conditions in ranked(session, question, workload_id, target_id):
            yield _answer(session, trial, f"among the fastest that were timed {conditions}", Sure.LIKELY)
        for similar_id, similar in kin_of(session, question):
            for trial, conditions in ranked(session, question, workload_id, similar_id):
                because = f"among the fastest on {words_of(similar)}, timed {conditions}"
                yield _answer(session, trial, because, Sure.LIKELY, timed=False)


def ranked(
    session: Session, question: ZeroShotQuery, workload_id: int, target_id: int, few: int = FEW
) -> Iterator[Timed]:
    """Yield the fastest trials of a workload from every context except the question's own.

    Times of two contexts are not comparable, so within a group the first of each context come
    before the second of each. Groups with the question's host class, threads and TVM are
    first, then its builder's, then those with fewer concurrent programs; imported trials come
    last.
    """
    own = None if question.context_id is None else Contexts(session).get(question.context_id)

    def group_key(context: Context) -> tuple[bool, bool, int]:
        programs, others = programs_beside(context), (True, True) if own is None else differ(context, own)
        return *others, -1 if programs is None else programs

    for imported in (False, True):
        contexts = Contexts(session).of_workload(workload_id, target_id, imported=imported)
        others = sorted((each for each in contexts if own is None or each.id != own.id), key=group_key)
        for _, group in groupby(others, key=group_key):
            yield from _by_rank(session, list(group), (workload_id, target_id, few), imported)


def _by_rank(
    session: Session, contexts: Sequence[Context], query: tuple[int, int, int], imported: bool
) -> Iterator[Timed]:
    read = Trials(session).best_brought if imported else Trials(session).best
    rows: dict[int, Sequence[Trial]] = {}
    for rank in range(query[2]):
        for context in contexts:
            if context.id not in rows:
                rows[context.id] = read(*query, context.id)
            if rank < len(rows[context.id]):
                yield rows[context.id][rank], _words(context, imported)


def _words(context: Context, imported: bool) -> str:
    programs = programs_beside(context)
    setting = "alone" if programs is None else "inside a model"
    load = f" beside {programs} other programs" if programs else ""
    host = (
        f"on {context.host_class}, {context.threads} threads, TVM {context.built_by or context.tvm_version}"
    )
    return f"{setting}{load} {host}{', in another dataset' if imported else ''}"


def kin_of(session: Session, question: ZeroShotQuery) -> Sequence[tuple[int, Target]]:
    """Return other targets with the same vectors and cores to tile for, nearest first."""
    others = [(row.id, Target(row.text)) for row in Targets(session).list() if row.id != question.target_id]
    distances = [(distance(question.target, target), id_, target) for id_, target in others]
    similar = [(gap, id_, target) for gap, id_, target in distances if gap is not None and gap.cuts_alike]
    return [(id_, target) for _, id_, target in sorted(similar, key=lambda each: each[:2])]


def words_of(target: Target) -> str:
    """Describe a target for an answer, by processor and number of cores."""
    processor = target.attrs.get("mcpu") or target.attrs.get("arch") or target.kind
    return f"{processor} with {target.num_cores} cores" if target.is_cpu else processor


def _answer(session: Session, trial: Trial, because: str, sure: Sure, timed: bool = True) -> ZeroShotAnswer:
    """Return an answer with the measured sketch: stock MetaSchedule's may not be in our space.

    `timed` is False if the trial's time was taken on another target and predicts nothing here.
    """
    key = trial.candidate.sketch
    sketch = Sketches(session).by_key({key})[key]
    expected_us = trial.latency_us if timed else None
    return ZeroShotAnswer(trial.candidate, Source.SAME, because, sure, expected_us, sketch)


class SimilarWorkload(AnswerSource):
    """Adapts trials of workloads with the same loops in other sizes, nearest first."""

    def __call__(self, session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
        workload = question.workload
        related = Workloads(session).of_structure(workload.structure, question.owner)
        distances = [(apart(workload, other), other) for other in related if other.id != workload.id]
        nearest = sorted(distances, key=lambda pair: (pair[0], pair[1].id))[:NEIGHBOURS]
        neighbours = [pair for pair in nearest if pair[0] <= CLOSE]
        targets = [
            (question.target_id, ""),
            *((id_, f" on {words_of(target)}") for id_, target in kin_of(session, question)),
        ]
        for target_id, words in targets:
            for doublings, neighbour in neighbours:
                yield from _carried(session, question, neighbour, doublings, target_id, words)


def apart(one: Workload, other: Workload) -> float:
    """Return the doublings of extents between two workloads with the same loops, summed."""
    pairs = zip(one.features["extents"], other.features["extents"], strict=False)
    return sum(abs(log2(a / b)) for a, b in pairs if a and b)


def _carried(
    session: Session, question: ZeroShotQuery, neighbour: Workload, gap: float, target_id: int, words: str
) -> Iterator[ZeroShotAnswer]:
    own = question.context_id
    own_trials = [] if own is None else Trials(session).best(neighbour.id, target_id, FEW_NEAR, own)
    elsewhere = islice(ranked(session, question, neighbour.id, target_id, FEW_NEAR), MOST_NEAR)
    trials = [*((trial, "here") for trial in own_trials), *elsewhere]
    sketches = Sketches(session).by_key({trial.candidate.sketch for trial, _ in trials})
    for trial, conditions in trials:
        sketch = sketches[trial.candidate.sketch]
        candidate = adapt_candidate(trial.candidate, sketch, question.space.sketches)
        if candidate is not None:
            times_apart = f"{exp2(gap):.1f} times apart{words}"
            because = f"carried from the same loops in sizes {times_apart}, timed {conditions}"
            yield ZeroShotAnswer(candidate, Source.NEAR, because, Sure.LIKELY)
