"""Choose between schedules by their kernels' times inside the whole model.

Timed by itself, a kernel finds its weights in the caches from the previous repeat; inside
the model it often has to fetch them. So close rivals of the winners are compiled into the
model, for all tasks at once, and every kernel is timed inside it. First guesses, which the
analytic model proposed without trials, take part however slow they were, unless compiling
takes too long, so that tuning does not make a model slower than it would be without trials.

On a busy host other kernels may be fastest (see the VELTAIR paper). If the job asks for it,
kernels are timed again while one load program per core computes and streams memory. The
model with the winners under load and the model with the winners on an idle host are then
both timed, from no load to full load.
"""

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

from mallorn.core.outcomes import Outcome
from mallorn.core.values.finish_report import BeforeAfter, Contention, LoadedLatency, ModelContests, Swap
from mallorn.core.values.manifest import DATABASE, ScheduleSet
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.session import read_clock
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.finish.final_candidates import inside_timing_settings
from mallorn.workers.finish.job_model import JobModel, TunedModel, place_on_device, require_local_device
from mallorn.workers.finish.numeric_check import Checker
from mallorn.workers.finish.step_log import StepLog
from mallorn.workers.round.store_referenced_rows import store_sketches

# Limits for compiling the rivals and the first guesses, as shares of the time spent on tuning.
LARGEST_SHARE: Final = 0.25
GUESSES_SHARE: Final = 1.0
# Least relative gain inside the model: more than the noise between two builds of the same
# kernel. Under load, two timings of the same kernel differ more.
WORTH: Final = 0.02
WORTH_UNDER_LOAD: Final = 0.05
BEFORE, AFTER, GUESSES = "before", "after", "guesses"
IDLE, LOADED = ScheduleSet.ALONE.value, ScheduleSet.LOADED.value
STEP: Final = "choose schedules for a busy machine"
log = logging.getLogger(__name__)
Times = Mapping[str, float]  # microseconds per run in each kernel, by the name of its task


class InsideChoice(NamedTuple):
    """The compiled model to export, and the report section on how it was chosen."""

    build: TunedModel
    report: ModelContests | None
    error: float = 0.0  # of its outputs against those of the build that was checked


def choose_build_inside_model(model: JobModel, first: TunedModel, checker: Checker) -> InsideChoice:
    """Return the fastest build of the model: with the winners, with faster rivals, or with
    first guesses (schedules that an analytic model proposed, without trials).

    Returns `first`, without a report, if there is no device, if the job has a time limit or
    no trials, if memory holds only one such model, if there are no alternatives, or if
    compiling them would take too long compared with tuning.
    """
    placed_model = place_on_device(model)
    if placed_model is None:
        return InsideChoice(first, None)
    model = placed_model
    started_sec, job = time.monotonic(), model.stage.job
    if job.minutes is not None or job.trials == 0 or first.is_large:
        return InsideChoice(first, None)
    with model.stage.runtime.database.session() as session:
        tuned_sec = read_clock(session) - job.started_at if job.started_at else 0.0
    alternatives = alternative_sets(first.winners, [winner.rivals for winner in first.winners])
    has_guesses = any(winner.guess is not None for winner in first.winners)
    guesses = [[winner.guess or winner for winner in first.winners]] if has_guesses else []
    builds_sec = first.compiled.seconds * (len(alternatives + guesses) + 1)
    if builds_sec <= LARGEST_SHARE * tuned_sec:
        alternatives += guesses
    elif first.compiled.seconds * 2 <= GUESSES_SHARE * tuned_sec:
        alternatives = guesses
    else:
        alternatives = []
    if not alternatives:
        return InsideChoice(first, None)
    with model.stage.runtime.database.transaction() as session:
        Jobs(session).set_reason(job.id, "close candidates are timed inside the whole model")

    builds = [first, *(model.build(f"rivals-{n}", row) for n, row in enumerate(alternatives, 1))]
    times = model.kernel_times(builds)
    sets = [build.winners for build in builds]
    replacements = verify_replacements(first.winners, fastest_schedules_inside(sets, times), checker)
    swaps = list_swaps(first.winners, replacements, sets, times)
    finalists = {BEFORE: first}
    if swaps:
        finalists[AFTER] = model.build("joined", replacements)
    if has_guesses:
        finalists[GUESSES] = builds[-1]
    latency_us = model.latencies(finalists) if len(finalists) > 1 else {}

    name = AFTER if swaps and latency_us[AFTER] < latency_us[BEFORE] else BEFORE
    build = finalists[name]
    # First guesses must be faster by more than noise, and pass the numeric check.
    if has_guesses and latency_us[GUESSES] < latency_us[name] * (1 - WORTH):
        guess_build = finalists[GUESSES]
        checked = verify_replacements(first.winners, guess_build.winners, checker)
        if [winner.slot for winner in checked] == [winner.slot for winner in guess_build.winners]:
            name, build = GUESSES, replace(guess_build, winners=tuple(checked))
    report = ModelContests(
        tasks=swaps,
        latency_us=BeforeAfter(**latency_us) if latency_us else None,
        uses_replacements=name == AFTER,
        uses_guesses=name == GUESSES,
        seconds=round(time.monotonic() - started_sec, 1),
    )
    return InsideChoice(build, report)


def fastest_schedules_inside(
    sets: Sequence[Sequence[Winner]], times: Sequence[Times], least_gain: float = WORTH
) -> list[Winner]:
    """Return each task's fastest schedule inside the model. Each of `sets` has one schedule
    per task, and `times` has their kernels' times in the same order. The first set's
    schedule stays unless another is faster by more than the share `least_gain`."""
    fastest = []
    for row in zip(*sets, strict=True):
        name = row[0].contest.task.name
        with_times = [(winner, us[name]) for winner, us in zip(row, times, strict=True) if name in us]
        best, best_us = min(with_times, key=lambda entry: entry[1], default=(row[0], inf))
        first_us = times[0].get(name, 0.0)  # if untimed, the first stays
        fastest.append(best if best_us < first_us * (1 - least_gain) else row[0])
    return fastest


def alternative_sets(
    winners: Sequence[Winner], alternatives: Sequence[Sequence[Winner]]
) -> list[list[Winner]]:
    """Return sets of one schedule per task, so that every alternative is in some set. Set n
    has each task's nth alternative; tasks with fewer alternatives keep their winner."""
    pairs = list(zip(winners, alternatives, strict=True))
    ranks = range(max(map(len, alternatives), default=0))
    return [[row[n] if n < len(row) else winner for winner, row in pairs] for n in ranks]


def verify_replacements(
    winners: Sequence[Winner], replacements: Sequence[Winner], checker: Checker
) -> list[Winner]:
    """Return per task the replacement if its outputs are correct, otherwise the winner."""
    checked_winners = list(winners)
    for index, (winner, rival) in enumerate(zip(winners, replacements, strict=True)):
        if rival is winner:
            continue
        verdict = checker.verify(winner.contest.program, winner.contest.slots[rival.slot])
        if verdict.has_passed:
            checked_winners[index] = replace(rival, trace=verdict.trace, max_error=verdict.max_error)
        else:
            log.warning("a rival of %s is left out: %s", winner.contest.task.name, verdict.words)
    return checked_winners


def list_swaps(
    winners: Sequence[Winner],
    replacements: Sequence[Winner],
    sets: Sequence[Sequence[Winner]],
    times: Sequence[Times],
) -> list[Swap]:
    """List tasks whose schedule changed, with both schedules' times inside the model."""
    swaps = []
    for index, (old, new) in enumerate(zip(winners, replacements, strict=True)):
        if old.slot == new.slot:
            continue
        name = old.contest.task.name
        number = next(n for n, row in enumerate(sets) if row[index].slot == new.slot)
        swaps.append(Swap(task=name, before_us=times[0][name], after_us=times[number][name]))
    return swaps


def choose_schedules_under_load(
    model: JobModel, winners: Sequence[Winner], build: TunedModel, checker: Checker, step_log: StepLog
) -> Contention | None:
    """Choose schedules that are fastest while other programs load the host, and return the
    report section on them; None if the job did not ask for that or it is impossible. If
    they make the model clearly faster under load, the export gets their tuning records."""
    if not model.stage.options.contention:
        return None
    if model.stage.graph_report.dynamic is not None:
        step_log.log_skipped_step(
            STEP, "a job for a range of shapes has one version", "mallorn tune MODEL --contention"
        )
        return None
    if build.is_large:
        step_log.log_skipped_step(
            STEP, "this host's memory does not hold several of so large a model", "free -g"
        )
        return None
    if not step_log.attempt(STEP, partial(require_local_device, model)):
        return None
    return step_log.attempt(STEP, partial(_build_and_time_under_load, model, winners, build, checker))


def _build_and_time_under_load(
    model: JobModel, winners: Sequence[Winner], first: TunedModel, checker: Checker
) -> Contention:
    """Build the model with the schedules that are fastest under load, and time it and
    `first` under several loads. If the new build wins, its records are exported."""
    started_sec = time.monotonic()
    with model.stage.runtime.database.transaction() as session:
        Jobs(session).set_reason(model.stage.job.id, "schedules are timed while other programs run")
    full_load = model.stage.target.num_cores
    winner_of = {winner.contest.task.name: winner for winner in winners}
    alternatives = []
    for exported in first.winners:
        task_winner = winner_of[exported.contest.task.name]
        candidates = (task_winner, *task_winner.rivals, *task_winner.versions)
        by_slot = {winner.slot: winner for winner in candidates if winner.slot != exported.slot}
        alternatives.append(list(by_slot.values()))
    other_sets = alternative_sets(first.winners, alternatives)
    builds = [first, *(model.build(f"sets-{n}", row) for n, row in enumerate(other_sets, 1))]
    times = model.kernel_times(builds, full_load) if other_sets else [{}]
    sets = [build.winners for build in builds]
    _store_loaded_times(model, sets, times)
    fastest = fastest_schedules_inside(sets, times, WORTH_UNDER_LOAD)
    under_load = verify_replacements(first.winners, fastest, checker)
    swaps = list_swaps(first.winners, under_load, sets, times)
    by_set = {IDLE: first} | ({LOADED: model.build(LOADED, under_load)} if swaps else {})
    loads: list[LoadedLatency] = []
    for programs in loads_to_time(full_load):
        us = model.latencies(by_set, programs)
        loads.append(LoadedLatency(programs=programs, alone_us=us[IDLE], loaded_us=us.get(LOADED)))
    wins_from = find_crossover_load(loads)
    if wins_from is not None:
        for name in DATABASE:
            copy = first.directory / ScheduleSet.LOADED.file(name)
            shutil.copyfile(by_set[LOADED].directory / name, copy)
    seconds = round(time.monotonic() - started_sec, 1)
    return Contention(tasks=swaps, loads=loads, min_programs=wins_from, seconds=seconds)


def loads_to_time(full_load: int) -> list[int]:
    """Return how many load programs run during each timing of the model: none, one, half of
    `full_load` and `full_load`."""
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


def _store_loaded_times(model: JobModel, sets: Sequence[Sequence[Winner]], times: Sequence[Times]) -> None:
    """Store kernel times for later jobs, in a measuring context that names the load."""
    stage = model.stage
    with stage.runtime.database.transaction() as session:
        context_id, contexts = Jobs(session).get(stage.job.id, None).context_id, Contexts(session)
        if context_id is None:
            return
        timing = inside_timing_settings(stage, stage.target.num_cores)
        loaded_context_id = contexts.ensure_timed_as(contexts.get(context_id), timing).id
        for row in zip(*sets, strict=True):
            contest = row[0].contest
            task = contest.task
            sketches = store_sketches(session, [slot.sketch for slot in contest.slots])
            timings = {winner.slot: (winner, us) for winner, us in zip(row, times, strict=True)}
            measurements: list[NewMeasurement] = []
            for winner, us in timings.values():
                if us.get(task.name):
                    candidate = winner.contest.slots[winner.slot].candidate
                    run_us = (us[task.name] / task.weight,)  # of one call
                    trial = Trial(candidate, Outcome.OK, origin=f"beside:{winner.means}", run_us=run_us)
                    sketch_id = sketches[candidate.sketch]
                    measurements.append(NewMeasurement(winner.slot, trial, sketch_id, loaded_context_id))
            Measurements(session).add_finish(
                stage.job.id, stage.hold.token, contest.workload.id, stage.job.target_id, measurements
            )
