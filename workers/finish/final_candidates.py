"""Select the candidates of each task that a finishing job measures once more."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import Unschedulable
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.measuring_contexts import Contexts, compare_contexts, count_other_programs
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Sketches
from mallorn.db.tables import Context, Job, Task, Workload
from mallorn.searchers.base import DEFAULT, proposal_method_of
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.measure.measurer_interface import MeasureInput, Program, number_candidates
from mallorn.workers.measure.tvm_space import TvmSpace
from mallorn.workers.process.leased_work import LeasedStage
from mallorn.workers.process.match_devices_and_builder import limits_of
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn.workers.round.loaded_round import descriptors_of, program_of, work_of
from mallorn.workers.subprocesses.errors import HOSTS_DOING, ChildError

log = logging.getLogger(__name__)

TOP: Final = 3
# Candidates slower than the fastest by more than this factor cannot win: noise is smaller.
WITHIN: Final = 1.15
# Candidates per task taken from other measuring contexts (another dataset or builder),
# where they were the fastest; they are measured and checked like the others.
BROUGHT: Final = 1
MODEL_CHARS: Final = 16
Entry = tuple[Candidate, Sketch]


@dataclass(frozen=True, slots=True)
class Contest:
    """A task, and the candidates that are timed again to choose its final schedule, the
    likeliest winner first. If the task has first guesses (schedules that an analytic model
    proposed, without trials), the fastest takes part, to be compared with the winner."""

    task: Task
    workload: Workload
    program: Program
    slots: tuple[MeasureInput, ...]
    guesses: Sequence[Candidate] = ()
    means: Mapping[Candidate, str] = field(default_factory=dict)  # last part of each origin


def select_final_candidates(
    stage: LeasedStage, task: Task, workload: Workload, inside_context_id: int | None = None
) -> Contest:
    """Return the contest (final candidates) of one of the job's tasks.

    A task without measurements gets the schedule that was fastest inside this whole model,
    if its times are stored in the measuring context `inside_context_id`. Otherwise it gets
    first guesses, after the fastest schedule inside another model if that id is given.
    """
    with stage.runtime.database.session() as session:
        prior = _contest_of_measured_candidates(session, stage, task, workload)
        if prior.slots:
            return prior
        if inside_context_id is not None:
            best = Trials(session, stage.job).best(
                task.workload_id, stage.job.target_id, 1, inside_context_id
            )
            if best:
                return contest_of_trials(session, task, workload, best)
            context = Contexts(session).get(inside_context_id)
            best = best_in_other_model(session, stage.job, task, context, 0)
            prior = contest_of_trials(session, task, workload, best)
    defaults = _default_candidates(stage, workload, TOP)
    guesses = {candidate: DEFAULT for candidate, _ in defaults}
    entries = dict([*((slot.candidate, slot.sketch) for slot in prior.slots), *defaults])
    slots = number_candidates(list(entries.items())[:TOP])
    return replace(prior, slots=slots, guesses=tuple(guesses), means={**prior.means, **guesses})


def inside_timing_settings(stage: LeasedStage, programs: int = 0) -> dict[str, object]:
    """Return the timing settings under which times of kernels inside this model are stored.

    They contain the number of load `programs` and a hash of the model's id, shapes and
    graph passes, because the kernels that run before one determine what it finds in the
    caches. A private job's owner is hashed, too, so that others cannot find these times.
    """
    job, options = stage.job, stage.options
    owner = job.owner if options.private else ""
    identity = job.model_id, owner, options.input_shapes, stage.graph_report.recipe.to_stored_json()
    digest = sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return options.timing_inside(stage.target, digest[:MODEL_CHARS], programs)


def derive_search_space(stage: LeasedStage, workload: Workload) -> TvmSpace:
    """Return the search space of a workload on the job's target. Raises Unschedulable if TVM
    has no schedule for it, crashes or hangs; ChildError if the host caused the failure."""
    program, compiler = program_of(workload), stage.runtime.compiler
    target = stage.target
    try:
        sketches = compiler.design_space(program.tir, target.text)
    except ChildError as error:
        if isinstance(error, HOSTS_DOING):
            raise
        raise Unschedulable(f"TVM fails at the workload: {error.message}") from error
    lookup = FeatureLookup(stage.runtime.database, compiler)
    by_key = {sketch.key: sketch for sketch in sketches}
    work = work_of(workload, stage.job.target_id, target.text, by_key)
    return TvmSpace(
        sketches,
        program,
        target,
        descriptors_of(workload),
        compiler,
        stage.job.machine,
        see=lambda view, candidates: lookup.rows(view, work, candidates),
    )


def select_replacement_candidates(stage: LeasedStage, contest: Contest) -> Contest | None:
    """Return a contest of the next-best measured candidates and unmeasured defaults, for a
    task all of whose candidates in `contest` failed. None if no candidates are left."""
    losers = {slot.candidate for slot in contest.slots}
    count = TOP + len(losers)
    with stage.runtime.database.session() as session:
        next_contest = _contest_of_measured_candidates(session, stage, contest.task, contest.workload, count)
    defaults = _default_candidates(stage, contest.workload, count)
    next_measured = [(s.candidate, s.sketch) for s in next_contest.slots if s.candidate not in losers]
    next_defaults = [entry for entry in defaults if entry[0] not in losers]
    entries = list(dict(next_measured[:TOP] + next_defaults[:TOP]).items())
    return replace(contest, slots=number_candidates(entries), means=next_contest.means) if entries else None


def _contest_of_measured_candidates(
    session: Session, stage: LeasedStage, task: Task, workload: Workload, count: int = TOP
) -> Contest:
    """Return a contest of the task's fastest stored candidates; it is empty without any."""
    job, options, trials = stage.job, stage.options, Trials(session, stage.job)
    best = fastest_trials(trials, job, task, count, WITHIN)
    count = BROUGHT if best else TOP
    incomparable = trials.best_incomparable(task.workload_id, job.target_id, count, job.context_id)
    limits = limits_of(options, stage.target)
    where = task.workload_id, job.target_id, job.context_id
    guesses = trials.list_fastest_of_first(*where, DEFAULT, TOP, limits)
    return contest_of_trials(session, task, workload, (*best, *incomparable, *guesses[:1]), guesses)


def fastest_trials(trials: Trials, job: Job, task: Task, count: int, within: float) -> list[Trial]:
    """Return the task's fastest trials in the job's context, as far as they are slower than
    the fastest by at most the factor `within`."""
    best = trials.best(task.workload_id, job.target_id, count, job.context_id)
    return [row for row in best if (row.latency_us or 0) <= within * (best[0].latency_us or 0)]


def contest_of_trials(
    session: Session, task: Task, workload: Workload, trials: Iterable[Trial], guesses: Sequence[Trial] = ()
) -> Contest:
    means: dict[Candidate, str] = {}
    for trial in trials:
        means.setdefault(trial.candidate, proposal_method_of(trial.origin))
    sketches = Sketches(session).by_key({candidate.sketch for candidate in means})
    slots = number_candidates([(candidate, sketches[candidate.sketch]) for candidate in means])
    guess_candidates = tuple(guess.candidate for guess in guesses)
    return Contest(task, workload, program_of(workload), slots, guess_candidates, means)


def best_in_other_model(
    session: Session, job: Job, task: Task, context: Context, programs: int
) -> Sequence[Trial]:
    """Return the task's fastest trial inside another model, on a comparable host.

    Only times taken while `programs` load programs ran count; contexts with the same builder
    are preferred. The time is not valid for this model, so the candidate is timed again.
    """
    comparable: list[tuple[bool, Context]] = []
    for candidate_context in Contexts(session).of_workload(task.workload_id, context.target_id):
        if count_other_programs(candidate_context) == programs:
            differs_in_host, differs_in_builder = compare_contexts(candidate_context, context)
            if not differs_in_host:
                comparable.append((differs_in_builder, candidate_context))
    if not comparable:
        return ()
    nearest = min(comparable, key=lambda pair: pair[0])[1]
    return Trials(session, job).best(task.workload_id, context.target_id, 1, nearest.id)


def _default_candidates(stage: LeasedStage, workload: Workload, count: int) -> Sequence[Entry]:
    """Return up to `count` schedules chosen without measuring; none if TVM has none."""
    try:
        space = derive_search_space(stage, workload)
    except Unschedulable as error:
        log.warning("no defaults for %s: %s", workload.key, error)
        return ()
    return [(candidate, space.by_key[candidate.sketch]) for candidate in space.likeliest(count)]
