"""The final contest of a task: its fastest candidates, or else defaults."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.measuring_contexts import Contexts, count_other_programs, differ
from db.repositories.sketches import Sketches
from db.repositories.trials import Trials
from db.tables import Context, Task, Workload
from mallorn.core.errors import Unschedulable
from mallorn.core.values.trial import Trial
from searchers.base import DEFAULT, means_of
from searchers.space import Candidate, Sketch
from workers.measure.base import MeasureInput, Program
from workers.process.leased_stage import StageContext
from workers.process.match_devices_and_builder import limits_of
from workers.round.feature_lookup import FeatureLookup
from workers.round.round_context import descriptors_of, program_of, work_of
from workers.subprocesses.errors import HOSTS_DOING, ChildError
from workers.tvm.tvm_space import TvmSpace

log = logging.getLogger(__name__)

TOP: Final = 3
# Candidates slower than the fastest by more than this factor are not measured again: noise is
# smaller.
WITHIN: Final = 1.15
# The same limits for jobs with a version for busy hosts, which may be slower on an idle host.
TOP_BESIDE: Final = 5
WITHIN_BESIDE: Final = 1.5
# Candidates per task taken from other measuring contexts (another dataset or builder), where
# they were the fastest; they are measured and checked like the others.
BROUGHT: Final = 1
MODEL_CHARS: Final = 16
Entry = tuple[Candidate, Sketch]


@dataclass(frozen=True, slots=True)
class Contest:
    """A task and the candidates that are measured again for it, the likeliest winner first.

    The fastest first guess is always included, because the report compares the result with it.
    (First guesses are all that a job without trials times.)
    """

    task: Task
    workload: Workload
    program: Program
    slots: tuple[MeasureInput, ...]
    guesses: Sequence[Candidate] = ()
    means: Mapping[Candidate, str] = field(default_factory=dict)  # last part of the origin


def contest_of(claimed: StageContext, task: Task, workload: Workload, inside: int | None = None) -> Contest:
    """Return the contest of one of the job's tasks.

    If the task has no trials, use only the schedule decided in context `inside` (times inside
    the model), if there is one; otherwise defaults, preceded by the fastest schedule inside
    another model.
    """
    prior = _Measured((), (), {})
    with claimed.runtime.database.session() as session:
        measured = _measured(session, claimed, task)
        if not measured.entries and inside is not None:
            decided = Trials(session).best(task.workload_id, claimed.job.target_id, 1, inside)
            measured = _found(session, decided)
            if not decided:
                prior = _found(session, _inside_others(session, task, Contexts(session).get(inside), 0))
    program = program_of(workload)
    if measured.entries:
        return Contest(task, workload, program, _number(measured.entries), measured.guesses, measured.means)
    defaults = _defaults(claimed, workload, TOP)
    guesses = {candidate: DEFAULT for candidate, _ in defaults}
    entries = list(dict([*prior.entries, *defaults]).items())[:TOP]
    return Contest(task, workload, program, _number(entries), tuple(guesses), {**prior.means, **guesses})


def timing_inside(stage: StageContext, programs: int = 0) -> dict[str, object]:
    """Return the settings for timing kernels inside the model with `programs` load programs.

    They name the model by a hash of its id, shapes and recipe, because the kernels that run
    before determine what a kernel finds in the caches. A private job's hash includes its
    owner, so that it tells other owners nothing about the model.
    """
    job, options = stage.job, stage.options
    owner = job.owner if options.is_private else ""
    identity = job.model_id, owner, options.input_shapes, stage.graph.recipe.stored()
    digest = sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return options.timing_inside(digest[:MODEL_CHARS], programs)


def space_of(claimed: StageContext, workload: Workload) -> TvmSpace:
    """Return the space of a workload.

    Raises Unschedulable if TVM has no schedule for it, crashes or hangs; ChildError if the
    host caused the failure.
    """
    program, compiler = program_of(workload), claimed.runtime.compiler
    target = claimed.target
    try:
        sketches = compiler.design_space(program.tir, target.text)
    except ChildError as error:
        if isinstance(error, HOSTS_DOING):
            raise
        raise Unschedulable(f"TVM fails at the workload: {error.message}") from error
    facts = target, descriptors_of(workload), compiler, claimed.job.machine
    viewer = FeatureLookup(claimed.runtime.database, compiler)
    by_key = {sketch.key: sketch for sketch in sketches}
    work = work_of(workload, claimed.job.target_id, target.text, by_key)
    return TvmSpace(sketches, program, *facts, see=lambda view, seen: viewer.rows(view, work, seen))


def second_chance(claimed: StageContext, lost: Contest) -> Contest | None:
    """Return a contest of the next fastest candidates and defaults; None if all of them lost."""
    losers = {slot.candidate for slot in lost.slots}
    with claimed.runtime.database.session() as session:
        measured = _measured(session, claimed, lost.task, TOP + len(losers))
    defaults = _defaults(claimed, lost.workload, TOP + len(losers))
    others = [
        [entry for entry in entries if entry[0] not in losers] for entries in (measured.entries, defaults)
    ]
    remaining = dict(others[0][:TOP] + others[1][:TOP])
    slots = _number(list(remaining.items()))
    return replace(lost, slots=slots, means=measured.means) if remaining else None


@dataclass(frozen=True, slots=True)
class _Measured:
    """Candidates of a task from the dataset: its likeliest winners, and the first guesses."""

    entries: Sequence[Entry]
    guesses: Sequence[Candidate]
    means: Mapping[Candidate, str]


def _measured(session: Session, claimed: StageContext, task: Task, count: int = TOP) -> _Measured:
    job, trials = claimed.job, Trials(session)
    limit = WITHIN
    if claimed.options.beside_others:
        count, limit = max(count, TOP_BESIDE), WITHIN_BESIDE
    best = trials.best(task.workload_id, job.target_id, count, job.context_id)
    best = [row for row in best if (row.latency_us or 0) <= limit * (best[0].latency_us or 0)]
    incomparable = trials.best_incomparable(
        task.workload_id, job.target_id, BROUGHT if best else TOP, job.context_id
    )
    limits = limits_of(claimed.options)
    guesses = trials.first(task.workload_id, job.target_id, job.context_id, DEFAULT, TOP, limits)
    return _found(session, (*best, *_busy(session, claimed, task), *incomparable, *guesses[:1]), guesses)


def _found(session: Session, trials: Iterable[Trial], guesses: Sequence[Trial] = ()) -> _Measured:
    means: dict[Candidate, str] = {}
    for trial in trials:
        means.setdefault(trial.candidate, means_of(trial.origin))
    sketches = Sketches(session).by_key({candidate.sketch for candidate in means})
    entries = [(candidate, sketches[candidate.sketch]) for candidate in means]
    return _Measured(entries, tuple(guess.candidate for guess in guesses), means)


def _busy(session: Session, claimed: StageContext, task: Task) -> Sequence[Trial]:
    """Return the fastest trial while other programs run; empty unless the job asks for that."""
    job, programs = claimed.job, claimed.target.num_cores
    if not claimed.options.beside_others or job.context_id is None:
        return ()
    contexts = Contexts(session)
    alone = contexts.get(job.context_id)
    beside = contexts.timed_as(alone, timing_inside(claimed, programs))
    decided = Trials(session).best(task.workload_id, job.target_id, 1, beside.id) if beside else ()
    return decided or _inside_others(session, task, alone, programs)


def _inside_others(session: Session, task: Task, context: Context, programs: int) -> Sequence[Trial]:
    """Return the fastest trial inside another model on a host comparable to that of `context`.

    Contexts of the same builder come first, then the order of `of_workload`. Its time is not
    valid for this model, so the candidate is timed here like the others.
    """
    key = task.workload_id, context.target_id
    inside = [each for each in Contexts(session).of_workload(*key) if count_other_programs(each) == programs]
    comparable = [(builder, each) for each in inside for host, builder in [differ(each, context)] if not host]
    first = min(comparable, key=lambda pair: pair[0], default=None)
    return () if first is None else Trials(session).best(*key, 1, first[1].id)


def _number(candidates: Sequence[Entry]) -> tuple[MeasureInput, ...]:
    return tuple(MeasureInput(number, *candidate) for number, candidate in enumerate(candidates))


def _defaults(claimed: StageContext, workload: Workload, count: int) -> Sequence[Entry]:
    """Return the likeliest candidates; empty if TVM cannot schedule the program."""
    try:
        space = space_of(claimed, workload)
    except Unschedulable as error:
        log.warning("no defaults for %s: %s", workload.key, error)
        return ()
    return [(candidate, space.by_key[candidate.sketch]) for candidate in space.likeliest(count)]
