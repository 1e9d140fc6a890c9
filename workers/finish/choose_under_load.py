"""Choose schedules for a busy host: a step of finishes that a job's option `contention` adds.

On a busy host other kernels may be fastest (see the VELTAIR paper). So the tasks' fastest
candidates are compiled into the model, and their kernels are timed while one load program per
core computes and streams memory. The model with the fastest schedules under load and the model
with the schedules that the finish decided on are then both timed, from no load to full load.
"""

import shutil
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from mallorn.core.outcomes import Outcome
from mallorn.core.values.finish_report import Contention, LoadedLatency
from mallorn.core.values.manifest import DATABASE, ScheduleSet
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.trials import Trials
from mallorn.workers.finish import decide
from mallorn.workers.finish.choose_winner import Winner, store_inside_times
from mallorn.workers.finish.final_candidates import (
    best_in_other_model,
    contest_of_trials,
    fastest_trials,
    inside_timing_settings,
)
from mallorn.workers.finish.job_model import KERNELS_SEC, TunedModel, require_local_device
from mallorn.workers.finish.order_candidates import Bench
from mallorn.workers.finish.step_log import ReportDraft

STEP: Final = "choose schedules for a busy machine"
IDLE, LOADED = ScheduleSet.ALONE.value, ScheduleSet.LOADED.value
# Candidates per task that are fastest on an idle host, and how much slower than the best.
TOP: Final = 6
WITHIN: Final = 1.5
WORTH_UNDER_LOAD: Final = 0.05  # least relative gain; under load, two timings of a kernel differ more


def choose_schedules_under_load(bench: Bench, build: TunedModel, report: ReportDraft) -> None:
    """Choose schedules that are fastest while other programs load the host, and report on
    them. If they make the model clearly faster under load, the export gets their tuning
    records. Log why if that is impossible."""
    step_log = bench.step_log
    if bench.stage.graph_report.dynamic is not None:
        reason, hint = "a job for a range of shapes has one version", "mallorn tune MODEL --contention"
        step_log.log_skipped_step(STEP, reason, hint)
    elif build.is_large:
        reason = "this host's memory does not hold several of so large a model"
        step_log.log_skipped_step(STEP, reason, "free -g")
    elif step_log.attempt(STEP, partial(require_local_device, bench.model)):
        contention = step_log.attempt(STEP, partial(build_and_time_under_load, bench, build))
        if contention is not None:
            report.contention = contention


def build_and_time_under_load(bench: Bench, first: TunedModel) -> Contention:
    """Build the model with the schedules that are fastest under load, and time it and
    `first` under several loads. If the new build wins, its records are exported."""
    started_sec, stage, model = time.monotonic(), bench.stage, bench.model
    full_load = stage.target.num_cores
    stage.set_step("schedules are timed while other programs run")
    with stage.runtime.database.session() as session:
        context_id = Jobs(session).get(stage.job.id, None).context_id
    rivals = [list_candidates(bench, winner, context_id) for winner in first.winners]
    timed = model.time_kernels(
        first, decide.alternative_sets(first.winners, rivals), bench.step_log, KERNELS_SEC, full_load
    )
    sets = timed.sets_with_times()
    store_loaded_times(bench, sets, context_id)
    fastest = decide.fastest_schedules_inside(sets, timed.times, WORTH_UNDER_LOAD)
    under_load = decide.verify_replacements(sets[0], fastest, bench.checker)
    swaps = decide.list_swaps(first.winners, under_load, sets, timed.times)
    by_set = {IDLE: first} | ({LOADED: model.build(LOADED, under_load)} if swaps else {})
    loads: list[LoadedLatency] = []
    with model.engines_of(by_set) as engines:
        for programs in loads_to_time(full_load):
            us = model.latencies(engines, programs)
            loads.append(LoadedLatency(programs=programs, alone_us=us[IDLE], loaded_us=us.get(LOADED)))
    wins_from = find_crossover_load(loads)
    if wins_from is not None:
        for name in DATABASE:
            copy = first.directory / ScheduleSet.LOADED.file(name)
            shutil.copyfile(by_set[LOADED].directory / name, copy)
    seconds = round(time.monotonic() - started_sec, 1)
    return Contention(tasks=swaps, loads=loads, min_programs=wins_from, seconds=seconds)


def list_candidates(bench: Bench, exported: Winner, context_id: int | None) -> list[Winner]:
    """Return other candidates of the exported schedule's task: what was fastest under load
    before, inside this or another model, then the fastest on an idle host."""
    stage, task, job = bench.stage, exported.contest.task, bench.stage.job
    with stage.runtime.database.session() as session:
        trials, contexts = Trials(session, job), Contexts(session)
        best: list[Trial] = []
        if context_id is not None:
            idle_context = contexts.get(context_id)
            timing = inside_timing_settings(stage, stage.target.num_cores)
            context = contexts.find_timed_as(idle_context, timing)
            if context is not None:
                best += trials.best(task.workload_id, job.target_id, 1, context.id)
            best = best or [*best_in_other_model(session, job, task, idle_context, stage.target.num_cores)]
        best += fastest_trials(trials, job, task, TOP, WITHIN)
        contest = exported.contest  # the guesses of a job without trials, if nothing else is known
        if any(trial.candidate != exported.entry.candidate for trial in best):
            contest = contest_of_trials(session, task, contest.workload, best)
    return [
        Winner(contest, slot.slot, Trial(slot.candidate, Outcome.OK), trace, None)
        for slot in contest.slots
        if slot.candidate != exported.entry.candidate
        and (trace := bench.checker.complete_trace(contest.program, slot))
    ]


def store_loaded_times(bench: Bench, sets: Sequence[Sequence[Winner]], context_id: int | None) -> None:
    """Store kernel times for later jobs, in a measuring context that names the load."""
    stage = bench.stage
    if context_id is None:
        return
    by_candidate = {(w.contest.task.id, w.entry.candidate): w for row in sets for w in row if w.latency_us}
    with stage.runtime.database.transaction() as session:
        contexts = Contexts(session)
        timing = inside_timing_settings(stage, stage.target.num_cores)
        loaded_context_id = contexts.ensure_like(contexts.get(context_id), evaluator=timing).id
        store_inside_times(session, stage, [*by_candidate.values()], loaded_context_id, "beside")


def loads_to_time(full_load: int) -> list[int]:
    """Return how many load programs run during each timing of the model."""
    return sorted({0, 1, full_load // 2, full_load})


def find_crossover_load(loads: Sequence[LoadedLatency]) -> int | None:
    """Return the number of load programs from which on the build chosen under load is always
    faster than the one chosen on an idle host. None if it is not so at the highest load."""
    programs = None
    for load in reversed(loads):
        if load.loaded_us is None or load.loaded_us > load.alone_us * (1 - WORTH_UNDER_LOAD):
            break
        programs = load.programs
    return programs
