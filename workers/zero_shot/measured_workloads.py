"""Sources of candidates from earlier measurements of the same or similar workloads."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice, product
from math import exp2, log2

from sqlalchemy.orm import Session

from mallorn.core.target_distance import distance
from mallorn.core.targets import Target
from mallorn.core.values.finish_report import Confidence, Source
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.measuring_contexts import Contexts, compare_contexts, count_other_programs
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Sketches, Workloads
from mallorn.db.tables import Context, Workload
from mallorn.searchers.adapt_candidate_to_shape import adapt_candidate
from mallorn.workers.zero_shot.answer_source import ZeroShotAnswer, ZeroShotQuery

FEW = 3  # trials per context
NEIGHBOURS = 4
FEW_NEAR = 2
MOST_NEAR = 2 * FEW_NEAR  # trials of a neighbour from other contexts
CLOSE = 1.0  # doublings of all loops together at which schedules are likely as good
Timed = tuple[Trial, str]  # a trial and, in words, the conditions under which it was timed


def propose_from_same_workload(session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
    """Propose the fastest trials of the same workload: first those in the job's conditions
    (host, threads, versions), then those in other conditions, then on similar targets."""
    trials, workload_id = Trials(session, question.job), question.workload.id
    target_id, context_id = question.job.target_id, question.job.context_id
    own_trials = [] if context_id is None else trials.best(workload_id, target_id, FEW, context_id)
    for trial in own_trials:
        yield _answer(session, trial, "the fastest that was measured here", Confidence.MEASURED)
    for trial, conditions in rank_trials_by_context(session, question, workload_id, target_id):
        yield _answer(session, trial, f"among the fastest that were timed {conditions}", Confidence.LIKELY)
    for similar_id, similar in similar_targets(session, question, [workload_id]):
        for trial, conditions in rank_trials_by_context(session, question, workload_id, similar_id):
            because = f"among the fastest on {describe_target(similar)}, timed {conditions}"
            yield _answer(session, trial, because, Confidence.LIKELY, is_timed_here=False)


def rank_trials_by_context(
    session: Session, question: ZeroShotQuery, workload_id: int, target_id: int, few: int = FEW
) -> Iterator[Timed]:
    """Yield a workload's fastest trials of each measuring context but the query's own.

    Times of two contexts are not comparable, so equally similar contexts take turns: the
    best trial of each, then the second best. Contexts with the query's host class, threads
    and TVM come first, then those whose candidates were built by the same code, then those
    timed while fewer other programs ran. Imported trials come last.
    """
    own_id, trials = question.job.context_id, Trials(session, question.job)
    own = None if own_id is None else Contexts(session).get(own_id)

    def group_key(context: Context) -> tuple[bool, bool, int]:
        programs = count_other_programs(context)
        differences = (True, True) if own is None else compare_contexts(context, own)
        return *differences, -1 if programs is None else programs

    for imported in (False, True):
        contexts = Contexts(session).of_workload(workload_id, target_id, imported=imported)
        other_contexts = sorted((c for c in contexts if own is None or c.id != own.id), key=group_key)
        for _, group in groupby(other_contexts, key=group_key):
            members = list(group)
            rows: dict[int, Sequence[Trial]] = {}
            for rank, context in product(range(few), members):
                if context.id not in rows:
                    rows[context.id] = trials.best(workload_id, target_id, few, context.id, imported=imported)
                if rank < len(rows[context.id]):
                    programs = count_other_programs(context)
                    setting = "alone" if programs is None else "inside a model"
                    load = f" beside {programs} other programs" if programs else ""
                    tvm_version = context.built_by or context.tvm_version
                    host = f"on {context.host_class}, {context.threads} threads, TVM {tvm_version}"
                    conditions = f"{setting}{load} {host}{', in another dataset' if imported else ''}"
                    yield rows[context.id][rank], conditions


def similar_targets(
    session: Session, question: ZeroShotQuery, workload_ids: Sequence[int]
) -> Sequence[tuple[int, Target]]:
    """Return the other targets on which a workload was measured, with as many cores and
    equally wide vectors, to which the same tilings are suited; the nearest first."""
    similar = []
    for row in Targets(session).list_measured(workload_ids):
        target = Target(row.text)
        gap = None if row.id == question.job.target_id else distance(question.target, target)
        if gap is not None and gap.has_same_tile_sizes:
            similar.append((gap, row.id, target))
    return [(id_, target) for _, id_, target in sorted(similar, key=lambda item: item[:2])]


def describe_target(target: Target) -> str:
    """Describe a target to users: its processor and, for a CPU, its number of cores."""
    processor = target.attrs.get("mcpu") or target.attrs.get("arch") or target.kind
    return f"{processor} with {target.num_cores} cores" if "num-cores" in target.attrs else processor


def _answer(
    session: Session, trial: Trial, because: str, sure: Confidence, is_timed_here: bool = True
) -> ZeroShotAnswer:
    """Propose a trial's candidate with the sketch that was measured, since our space may
    lack it. The trial's time is left out unless it is of the query's own target."""
    key = trial.candidate.sketch
    sketch = Sketches(session).by_key({key})[key]
    expected_us = trial.latency_us if is_timed_here else None
    return ZeroShotAnswer(trial.candidate, Source.SAME, because, sure, expected_us, sketch)


def propose_from_similar_workloads(session: Session, question: ZeroShotQuery) -> Iterator[ZeroShotAnswer]:
    """Propose trials of workloads that have the same loops in other sizes, adapted to this
    workload's sizes. The nearest workloads come first."""
    workload = question.workload
    related = Workloads(session).of_structure(workload.structure, question.job.owner)
    distances = [(doublings_between(workload, item), item) for item in related if item.id != workload.id]
    nearest = sorted(distances, key=lambda pair: (pair[0], pair[1].id))[:NEIGHBOURS]
    neighbours = [pair for pair in nearest if pair[0] <= CLOSE]
    similar = similar_targets(session, question, [neighbour.id for _, neighbour in neighbours])
    targets = [
        (question.job.target_id, ""),
        *((id_, f" on {describe_target(target)}") for id_, target in similar),
    ]
    context_id = question.job.context_id
    for (target_id, words), (doublings, neighbour) in product(targets, neighbours):
        trials: list[Timed] = []
        if context_id is not None:
            best = Trials(session, question.job).best(neighbour.id, target_id, FEW_NEAR, context_id)
            trials += [(trial, "here") for trial in best]
        trials += islice(
            rank_trials_by_context(session, question, neighbour.id, target_id, FEW_NEAR), MOST_NEAR
        )
        sketches = Sketches(session).by_key({trial.candidate.sketch for trial, _ in trials})
        for trial, conditions in trials:
            sketch = sketches[trial.candidate.sketch]
            candidate = adapt_candidate(trial.candidate, sketch, question.space.sketches)
            if candidate is not None:
                times_apart = f"{exp2(doublings):.1f} times apart{words}"
                because = f"carried from the same loops in sizes {times_apart}, timed {conditions}"
                yield ZeroShotAnswer(candidate, Source.NEAR, because, Confidence.LIKELY)


def doublings_between(left: Workload, right: Workload) -> float:
    """Return the sum over loops of the absolute log2 ratio of two workloads' extents."""
    pairs = zip(left.features["extents"], right.features["extents"], strict=False)
    return sum(abs(log2(a / b)) for a, b in pairs if a and b)
