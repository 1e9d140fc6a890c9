"""Who may win a task: its fastest candidates, or sane defaults where those are missing or fail."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.measuring_contexts import Contexts, differ, programs_beside
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
# Rivals slower than this beside the fastest have no chance: no noise that we have seen explains as much.
WITHIN: Final = 1.15
# A version for busy machines may be slower than that alone.
TOP_BESIDE: Final = 5
WITHIN_BESIDE: Final = 1.5
# What another dataset or another builder found fastest may be that here, too: it is measured and checked
# like the others.
BROUGHT: Final = 1
MODEL_CHARS: Final = 16
Entry = tuple[Candidate, Sketch]


@dataclass(frozen=True, slots=True)
class Contest:
    """A task and the candidates that are measured once more for it, the likeliest winner first.

    The fastest of the first guesses, which are all that a job without trials times, is among them however
    slow: what trials brought is told beside it.
    """

    task: Task
    workload: Workload
    program: Program
    slots: tuple[MeasureInput, ...]
    guesses: Sequence[Candidate] = ()
    means: Mapping[Candidate, str] = field(default_factory=dict)  # how each was found


def contest_of(claimed: StageContext, task: Task, workload: Workload, inside: int | None = None) -> Contest:
    """The contest of one of the job's tasks.

    Without trials what was decided in the context `inside`, of times inside the model,
    stands alone. What was fastest inside another model is the first of the guesses.
    """
    prior = _Measured((), (), {})
    with claimed.runtime.database.session() as session:
        known = _measured(session, claimed, task)
        if not known.entries and inside is not None:
            decided = Trials(session).best(task.workload_id, claimed.job.target_id, 1, inside)
            known = _found(session, decided)
            if not decided:
                prior = _found(session, _inside_others(session, task, Contexts(session).get(inside), 0))
    program = program_of(workload)
    if known.entries:
        return Contest(task, workload, program, _number(known.entries), known.guesses, known.means)
    defaults = _defaults(claimed, workload, TOP)
    guesses = {candidate: DEFAULT for candidate, _ in defaults}
    entries = list(dict([*prior.entries, *defaults]).items())[:TOP]
    return Contest(task, workload, program, _number(entries), tuple(guesses), {**prior.means, **guesses})


def timing_inside(stage: StageContext, programs: int = 0) -> dict[str, object]:
    """Return how kernels are timed inside the job's model, beside so many other programs.

    A hash of its bytes, shapes and recipe names the model: what runs before a kernel
    decides what the kernel finds in the caches. The owner is part of a private job's hash,
    which tells others nothing of the model.
    """
    job, options = stage.job, stage.options
    owner = job.owner if options.is_private else ""
    named = job.model_id, owner, options.input_shapes, stage.graph.recipe.stored()
    digest = sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()
    return options.timing_inside(digest[:MODEL_CHARS], programs)


def space_of(claimed: StageContext, workload: Workload) -> TvmSpace:
    """Return the space of a workload.

    Raises Unschedulable where TVM has no schedule for it, crashes or hangs, and ChildError
    where the host is to blame.
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
    """The next fastest and the defaults, without those that lost already; None when there are no others."""
    known = {slot.candidate for slot in lost.slots}
    with claimed.runtime.database.session() as session:
        measured = _measured(session, claimed, lost.task, TOP + len(known))
    defaults = _defaults(claimed, lost.workload, TOP + len(known))
    others = [
        [entry for entry in entries if entry[0] not in known] for entries in (measured.entries, defaults)
    ]
    both = dict(others[0][:TOP] + others[1][:TOP])
    slots = _number(list(both.items()))
    return replace(lost, slots=slots, means=measured.means) if both else None


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the dataset knows of a task: its likeliest winners, and the first guesses."""

    entries: Sequence[Entry]
    guesses: Sequence[Candidate]
    means: Mapping[Candidate, str]


def _measured(session: Session, claimed: StageContext, task: Task, count: int = TOP) -> _Measured:
    job, known = claimed.job, Trials(session)
    within = WITHIN
    if claimed.options.beside_others:
        count, within = max(count, TOP_BESIDE), WITHIN_BESIDE
    best = known.best(task.workload_id, job.target_id, count, job.context_id)
    best = [row for row in best if (row.latency_us or 0) <= within * (best[0].latency_us or 0)]
    brought = known.best_incomparable(
        task.workload_id, job.target_id, BROUGHT if best else TOP, job.context_id
    )
    limits = limits_of(claimed.options)
    guesses = known.first(task.workload_id, job.target_id, job.context_id, DEFAULT, TOP, limits)
    return _found(session, (*best, *_busy(session, claimed, task), *brought, *guesses[:1]), guesses)


def _found(session: Session, trials: Iterable[Trial], guesses: Sequence[Trial] = ()) -> _Measured:
    means: dict[Candidate, str] = {}
    for trial in trials:
        means.setdefault(trial.candidate, means_of(trial.origin))
    sketches = Sketches(session).by_key({candidate.sketch for candidate in means})
    entries = [(candidate, sketches[candidate.sketch]) for candidate in means]
    return _Measured(entries, tuple(guess.candidate for guess in guesses), means)


def _busy(session: Session, claimed: StageContext, task: Task) -> Sequence[Trial]:
    """What was fastest beside other programs, for whoever asks for that."""
    job, programs = claimed.job, claimed.target.num_cores
    if not claimed.options.beside_others or job.context_id is None:
        return ()
    contexts = Contexts(session)
    alone = contexts.get(job.context_id)
    beside = contexts.timed_as(alone, timing_inside(claimed, programs))
    decided = Trials(session).best(task.workload_id, job.target_id, 1, beside.id) if beside else ()
    return decided or _inside_others(session, task, alone, programs)


def _inside_others(session: Session, task: Task, like: Context, programs: int) -> Sequence[Trial]:
    """Return the fastest inside another model on such a host, the one that timed the task most often.

    Its time says nothing of this model: it is timed here like the others. Times of the same
    builder go before those of another.
    """
    which = task.workload_id, like.target_id
    inside = [each for each in Contexts(session).of_workload(*which) if programs_beside(each) == programs]
    known = [(builder, each) for each in inside for host, builder in [differ(each, like)] if not host]
    first = min(known, key=lambda pair: pair[0], default=None)
    return () if first is None else Trials(session).best(*which, 1, first[1].id)


def _number(candidates: Sequence[Entry]) -> tuple[MeasureInput, ...]:
    return tuple(MeasureInput(number, *candidate) for number, candidate in enumerate(candidates))


def _defaults(claimed: StageContext, workload: Workload, count: int) -> Sequence[Entry]:
    """The likeliest candidates; none where TVM cannot schedule the program, and the finish goes on."""
    try:
        space = space_of(claimed, workload)
    except Unschedulable as error:
        log.warning("no defaults for %s: %s", workload.key, error)
        return ()
    return [(candidate, space.by_key[candidate.sketch]) for candidate in space.likeliest(count)]
