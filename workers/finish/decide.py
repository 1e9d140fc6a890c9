"""Decide which schedule each task of a finishing job gets: `decide` goes five steps.

1. Order each task's candidates: by their times apart from the model, by stored results, or by
   guesses of an analytic model.
2. Build the model with each task's first choice. First choices are checked task by task
   before, or together by the outputs of this build.
3. Publish this build if a user waits for it: a job without trials may be cancelled from then on.
4. Build the model with rivals while the budget lasts, and time every kernel inside the model.
   Timed apart, a kernel finds its weights in the caches from the previous repeat; inside
   the model it often has to fetch them.
5. Build the model with the fastest rivals that compute correctly, and keep the fastest build.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from mallorn.core.states import ZERO_SHOT
from mallorn.core.values.event import ExportedEvent
from mallorn.core.values.finish_report import BeforeAfter, FinishReport, ModelContests, ModelLatency, Swap
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.session import read_clock
from mallorn.results.speedup import compare_with_rival
from mallorn.workers.finish.build_final_schedules import (
    FEW_KERNELS_SEC,
    FinalSchedules,
    build_and_check_whole,
    build_final_schedules,
    write_records_only,
)
from mallorn.workers.finish.choose_winner import Times, Winner, store_inside_times
from mallorn.workers.finish.export_directory import add_library, complete_export, upload
from mallorn.workers.finish.job_model import KERNELS_SEC, TunedModel, place_on_device
from mallorn.workers.finish.numeric_check import Checker
from mallorn.workers.finish.order_candidates import (
    Bench,
    TaskDecisions,
    order_by_answers,
    order_by_guesses,
    order_by_times,
)
from mallorn.workers.measure.measurer_interface import Need
from mallorn.workers.process.leased_work import LeasedStage

# Limits for compiling the rivals and the first guesses, as shares of the time spent on tuning.
LARGEST_SHARE: Final = 0.25
GUESSES_SHARE: Final = 1.0
# Share of a run; of a job without trials, tasks below it in sum keep their first guess.
LIGHT: Final = 0.05
# Least relative gain inside the model: more than the noise between two builds of the same kernel.
WORTH: Final = 0.02
BEFORE, AFTER, GUESSES = "before", "after", "guesses"
INSIDE: Final = "compare rival schedules inside the whole model"
CALL_ALONE: Final = "run the library with TVM's runtime alone"
log = logging.getLogger(__name__)


def decide(bench: Bench) -> tuple[TaskDecisions, FinalSchedules]:
    """Return each task's decision, and the schedules to export, with the fastest build of the
    model that passed its checks. A task whose schedule kept the model from compiling counts
    as one without a schedule."""
    decisions, first = order_and_build(bench)
    if first.built is not None and first.check is not None:
        publish_first(bench, first.built, first.check.latency_us)
    final = bench.step_log.attempt(INSIDE, partial(keep_fastest_inside, bench, first)) or first
    context_id = decisions.inside_context_id
    if final.built is not None and final.check is not None and context_id is not None:
        final = store_guesses(bench, final, final.built, final.check.error, context_id)
        decisions = replace(decisions, winners=final.winners)
    names = {winner.contest.task.name for winner in final.winners}
    exported = [winner for winner in decisions.winners if winner.contest.task.name in names]
    left_out = [winner.contest for winner in decisions.winners if winner.contest.task.name not in names]
    return replace(decisions, winners=exported, losers=[*decisions.losers, *left_out]), final


def order_and_build(bench: Bench) -> tuple[TaskDecisions, FinalSchedules]:
    """Choose each task's first candidate, and build the model with them if it can be timed.

    A job without trials takes first guesses, checked together. It is decided as other jobs
    are if no device can time the model, or if the model with the likeliest guesses does not
    compile or has wrong outputs.
    """
    stage, step_log = bench.stage, bench.step_log
    can_time = stage.options.mode != ZERO_SHOT and step_log.attempt(
        Need.TIME, partial(bench.measurer.require, Need.TIME)
    )
    guesses = can_time and stage.job.trials == 0 and may_decide_inside(stage)
    if guesses and (placed_model := place_on_device(bench.model)) is not None:
        decisions = order_by_guesses(replace(bench, model=placed_model))
        if decisions.winners:
            first = build_and_check_whole(placed_model, decisions.winners, step_log)
            if first is not None:
                return decisions, first
    order = order_by_times if stage.options.needs_measurements else order_by_answers
    with step_log.time_step("decide"):
        decisions = order(bench)
        build = partial(build_final_schedules, step_log=step_log) if can_time else write_records_only
        return decisions, build(bench.model, decisions.winners)


def may_decide_inside(stage: LeasedStage) -> bool:
    """Return whether the job lets times inside the model decide. Times inside the largest
    shapes of a range say nothing about its other shapes."""
    options = stage.options
    return options.needs_measurements and options.contests == "inside" and stage.graph_report.dynamic is None


def publish_first(bench: Bench, build: TunedModel, latency_us: Mapping[str, ModelLatency]) -> None:
    """Export the checked build, in case the job is cancelled while rivals are timed."""
    stage, compiled = bench.stage, build.compiled
    with bench.step_log.time_step("export"):
        complete_export(stage, build.winners, build.directory)
        report = FinishReport(
            schedule_count=compiled.found,
            workload_count=compiled.of,
            unscheduled_workloads=compiled.missing,
            latency_us=dict(latency_us),
        )
        if stage.options.library and bench.step_log.attempt(
            CALL_ALONE, partial(bench.model.check_alone, build.library)
        ):
            library = add_library(build.directory, build.library, compiled)
            report = report.model_copy(update={"library": library})
        url = upload(stage, build.directory, report)
    with stage.runtime.database.transaction() as session:
        Jobs(session).store_report_columns(stage.job.id, export_uri=url, export_deleted_at=None)
        sec = round(read_clock(session) - stage.job.created_at, 1)
        race = compare_with_rival(report.latency_us)
        ratio = None if race is None else round(1 / race.times, 3)
        Events(session).append(stage.job.id, ExportedEvent(seconds=sec, latency_ratio=ratio))


def sets_within_budget(stage: LeasedStage, build: TunedModel, is_whole_checked: bool) -> list[list[Winner]]:
    """Return sets of one schedule per task that are worth building the model with.

    A job without trials, whose model was checked as a whole, tries the rivals of the tasks
    that take most of a run. Otherwise, compiling rivals must be short compared with tuning.
    Then the last set has each task's first guess, which an analytic model proposed without
    trials: these take part however slow they were apart, so that tuning does not make a
    model slower than it would be without trials.
    """
    winners, job = build.winners, stage.job
    if is_whole_checked:
        heavy_tasks = find_heavy_tasks(winners)
        rivals = [winner.rivals if winner.contest.task.name in heavy_tasks else () for winner in winners]
        return alternative_sets(winners, rivals)
    if job.minutes is not None or job.trials == 0:
        return []
    with stage.runtime.database.session() as session:
        tuned_sec = read_clock(session) - job.started_at if job.started_at else 0.0
    sets = alternative_sets(winners, [winner.rivals for winner in winners])
    guesses = [[winner.guess or winner for winner in winners]] if has_guesses(winners) else []
    if build.compiled.seconds * (len(sets + guesses) + 1) <= LARGEST_SHARE * tuned_sec:
        return sets + guesses
    return guesses if build.compiled.seconds * 2 <= GUESSES_SHARE * tuned_sec else []


def has_guesses(winners: Sequence[Winner]) -> bool:
    return any(winner.guess is not None for winner in winners)


def find_heavy_tasks(winners: Sequence[Winner]) -> set[str]:
    """Return the tasks that take the most of a run, without those that take LIGHT in sum."""
    run_us = {w.contest.task.name: (w.latency_us or 0.0) * w.contest.task.weight for w in winners}
    heavy_tasks, left_us = set[str](), sum(run_us.values())
    light_us = left_us * LIGHT
    for name, us in sorted(run_us.items(), key=lambda item: -item[1]):
        if left_us <= light_us:
            break
        heavy_tasks.add(name)
        left_us -= us
    return heavy_tasks


def keep_fastest_inside(bench: Bench, first: FinalSchedules) -> FinalSchedules:
    """Return the fastest build of the model: the first, one with rivals that are faster inside
    it, or one with first guesses. Each rival's outputs must be correct or, if the first
    build was checked as a whole, those of the model with rivals.

    Returns `first`, without a report, if `may_decide_inside` or `sets_within_budget` rule
    rivals out, if no device is online, or if memory holds only one such model.
    """
    stage, step_log, check, started_sec = bench.stage, bench.step_log, first.check, time.monotonic()
    if first.built is None or first.built.is_large or not may_decide_inside(stage):
        return first
    other_sets = sets_within_budget(stage, first.built, check is not None)
    if not other_sets or (model := place_on_device(bench.model)) is None:
        return first
    stage.set_step("rival schedules are timed inside the whole model")
    seconds = KERNELS_SEC if check is None else FEW_KERNELS_SEC
    timed = model.time_kernels(first.built, other_sets, step_log, seconds)
    sets = [build.winners for build in timed.builds] if check is None else timed.sets_with_times()
    fastest = fastest_schedules_inside(sets, timed.times)
    if check is None:
        with step_log.time_step("check"):
            fastest = verify_replacements(first.winners, fastest, bench.checker)
    swaps = list_swaps(first.winners, fastest, sets, timed.times)
    finalists = {BEFORE: first.built}
    if swaps:
        with step_log.time_step("build"):
            finalists[AFTER] = model.build("joined", fastest)
    if check is None and has_guesses(first.winners):
        finalists[GUESSES] = timed.builds[-1]
    latency_us, error = dict[str, float](), 0.0
    if len(finalists) > 1:
        with step_log.time_step("time"), model.engines_of(finalists) as engines:
            error = 0.0 if check is None else engines.errors(AFTER).get(BEFORE, inf)
            if check is None or error <= check.largest_error:
                latency_us = model.latencies(engines)

    name = AFTER if latency_us.get(AFTER, inf) < latency_us.get(BEFORE, inf) else BEFORE
    build = finalists[name]
    # First guesses must be faster by more than noise, and pass the numeric check.
    if latency_us.get(GUESSES, inf) < latency_us.get(name, inf) * (1 - WORTH):
        guesses = finalists[GUESSES]
        checked = verify_replacements(first.winners, guesses.winners, bench.checker)
        if [winner.slot for winner in checked] == [winner.slot for winner in guesses.winners]:
            name, build = GUESSES, replace(guesses, winners=tuple(checked))
    report = ModelContests(
        tasks=swaps,
        latency_us=BeforeAfter(**latency_us) if latency_us else None,
        uses_replacements=name == AFTER,
        uses_guesses=name == GUESSES,
        seconds=round(time.monotonic() - started_sec, 1),
    )
    if check is not None and name == AFTER:
        check = replace(check, error=check.error + error)
    return FinalSchedules(build.winners, build.directory, build, build.compiled, report, check)


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
        verdict = checker.verify(winner.contest.program, rival.entry)
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
        if old.entry.candidate == new.entry.candidate:
            continue
        name = old.contest.task.name
        number = next(n for n, row in enumerate(sets) if row[index].entry.candidate == new.entry.candidate)
        swaps.append(Swap(task=name, before_us=times[0][name], after_us=times[number][name]))
    return swaps


def store_guesses(
    bench: Bench, final: FinalSchedules, build: TunedModel, error: float, context_id: int
) -> FinalSchedules:
    """Store the times inside the model, promote the schedules with the error of the whole
    model, and keep the library for the owner's next job with these schedules."""
    stage = bench.stage
    winners = tuple(replace(winner, max_error=error) for winner in final.winners)
    timed = [winner for winner in winners if winner.latency_us is not None]
    with stage.runtime.database.transaction() as session:
        ids = store_inside_times(session, stage, timed, context_id, "inside")
        for winner, measurement_id in zip(timed, ids, strict=True):
            Schedules(session).promote(winner.schedule(stage.job, context_id, measurement_id))
    directory = build.directory
    if final.inside is None or not final.inside.uses_replacements:  # its records lack the times
        directory = bench.model.write_tuning_records("export", winners)
    if not stage.options.private:
        bench.model.libraries.store_library(winners, build.library, build.compiled)
    build = replace(build, winners=winners, directory=directory)
    return replace(final, winners=winners, directory=directory, built=build)
