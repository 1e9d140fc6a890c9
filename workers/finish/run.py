"""Finish a job: run all steps from the last round to the report."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from db.repositories.fleet_activity import StageRuns
from db.repositories.job_events_and_warnings import Events
from db.repositories.job_progress import progress
from db.repositories.jobs import Jobs
from db.repositories.rounds import Rounds
from db.repositories.search_and_finish_states import FinishSteps
from db.session import read_clock
from mallorn.core.errors import MallornError, Unavailable, Unschedulable
from mallorn.core.states import ZERO_SHOT, JobState, StageKind
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.event import DoneEvent, FinishingEvent
from mallorn.core.values.finish_report import Conditions, FinishReport, Limits, StepSeconds
from workers.finish.compare_engines import compare
from workers.finish.contenders import Contest
from workers.finish.decide_tasks import Decided, decide_all
from workers.finish.export_directory import complete_export, settle_rules, upload
from workers.finish.final_schedules import FinalSchedules, choose, keep_scripts, records_alone
from workers.finish.guess_inside_model import guess_inside
from workers.finish.job_model import JobModel
from workers.finish.numeric_checker import Checker, Unchecked
from workers.finish.predict_tuning_gain import what_trials_win
from workers.finish.schedules_for_busy_hosts import beside_others
from workers.finish.step_log import StepLog
from workers.finish.verifier import verifier
from workers.finish.winners import Winner
from workers.hardware_probe.run import PROBES_SEC, ensure_machine, known_machine
from workers.interfaces.model_compiler import ModelCompiler
from workers.measure.base import Measurer, Need
from workers.model_import.run import check_import
from workers.process.leased_stage import StageContext, StageFolder, leased_stage, stage_folder
from workers.process.match_devices_and_builder import settle_builder
from workers.process.worker_runtime import Runtime
from workers.subprocesses.errors import ChildError
from workers.whole_model.compiled_model import IdleEngines
from workers.whole_model.engines import TUNED

RESTORED: Final = "the database was restored: what was decided since then is decided again"


def finish(runtime: Runtime, job_id: str) -> None:
    """Lease a FINISHING job and finish it; if its import is stale, send it back to import."""
    with leased_stage(runtime, job_id, JobState.FINISHING) as claimed:
        if claimed is not None:
            finish_stage(claimed)


def finish_stage(claimed: StageContext, answers: tuple[Measurer, Checker] | None = None) -> None:
    """Finish a leased job; `answers` stand in for a detached device's measurements."""
    job_id = claimed.job.id
    with claimed.runtime.stage_run(StageKind.FINISH, job_id, f"finishing job {job_id}"):
        step_log = StepLog(claimed)
        with step_log.step("probe"):
            settle_builder(claimed.runtime, job_id)
            check_import(claimed.runtime, job_id)
            measuring = claimed.options.mode != ZERO_SHOT and not claimed.options.is_detached
            # A job without trials has no machine probe yet. Go on if the compiler fails at it.
            with suppress(ChildError, Unschedulable):
                ensure_machine(claimed.runtime, job_id, PROBES_SEC, measuring)
            with claimed.runtime.database.session() as session:
                claimed = replace(claimed, job=Jobs(session).get(job_id, None))
        _finish(claimed, step_log, answers)


def _finish(claimed: StageContext, step_log: StepLog, answers: tuple[Measurer, Checker] | None) -> None:
    started = time.monotonic()
    reason = claimed.job.tuning_ended
    with (
        stage_folder(claimed.runtime, "finish-") as folder,
        claimed.graphs(folder) as graphs,
        IdleEngines() as idle,
    ):
        measurer = answers[0] if answers else claimed.runtime.measurer(claimed.options, claimed.like)
        checker = (
            nullcontext(answers[1]) if answers else _checker(claimed, graphs, folder, measurer, step_log)
        )
        with checker as check:
            model = JobModel.of(claimed, graphs, folder, idle)
            guessed = _guess(claimed, model, measurer, check, step_log)
            if guessed is not None:
                decided, handout = guessed
            else:
                with step_log.step("decide"):
                    decided = decide_all(claimed, reason, measurer, check)
                    handout = _hand_out(model, decided.winners, measurer, check, step_log)
        # A schedule that was left out, so that the model compiles, counts as no schedule.
        names = {winner.contest.task.name for winner in handout.winners}
        exported = [each for each in decided.winners if each.contest.task.name in names]
        dropped = [each.contest for each in decided.winners if each.contest.task.name not in names]
        decided = replace(decided, winners=exported, losers=[*decided.losers, *dropped])
        with step_log.step("export"):
            complete_export(claimed, handout.winners, handout.directory)
            # Include the promoted winners, since rivals may be exported in their place.
            checked = [winner for winner in (*decided.winners, *handout.winners) if winner.is_checked]
            keep_scripts(claimed, checked, graphs)
        measured_by = FinishReport(measured_by=claimed.measured_by)
        tasks_and_answers = _tasks(claimed, handout.winners, decided.losers), decided.answers
        parts = [measured_by, _expected(claimed), *tasks_and_answers, handout.report]
        if handout.built is not None:
            with step_log.step("compare"):
                timed = compare(model, handout.built, step_log)
            parts.append(timed)
            settle_rules(handout.directory, timed.points)
            if claimed.graph.dynamic is None:  # a range's tasks belong to different runs
                parts.append(limits(claimed, _contests(decided), timed))
                parts.append(what_trials_win(claimed, decided.winners, timed))
            parts.append(beside_others(model, decided.winners, handout, check, step_log))
        claimed.lease.check()
        finish_sec = round(decided.earlier_sec + time.monotonic() - started, 1)
        seconds = _seconds(claimed, step_log.seconds)
        ended = FinishReport(finish_sec=finish_sec, seconds=seconds, not_done=step_log.entries)
        with claimed.runtime.database.session() as session:
            job_progress = progress(session, Jobs(session).get(claimed.job.id, None))
        trials = FinishReport(trials=job_progress.spent, outcomes=job_progress.outcomes)
        report = _together(*parts, trials, ended)
        report = _together(report, conditions(claimed, report, decided.winners))
        steps = len(_contests(decided)) if claimed.options.searches and guessed is None else 0
        _store(claimed, reason, report, upload(claimed, handout.directory, report), steps)


def _guess(
    claimed: StageContext, model: JobModel, measurer: Measurer, check: Checker, step_log: StepLog
) -> tuple[Decided, FinalSchedules] | None:
    """Decide inside the model (`guess_inside`); None if the measurer cannot time it."""
    try:
        measurer.require(Need.TIME)
    except MallornError:
        return None
    return guess_inside(claimed, model, check, step_log)


def _checker(
    claimed: StageContext, graphs: ModelCompiler, folder: StageFolder, measurer: Measurer, step_log: StepLog
) -> AbstractContextManager[Checker]:
    """Return a verifier if the job checks outputs on a device, else `Unchecked`."""
    runtime, target, is_required = claimed.runtime, claimed.target, claimed.options.mode != ZERO_SHOT
    if is_required and step_log.attempt(Need.CHECK, partial(measurer.require, Need.CHECK)):
        return verifier(runtime, target, graphs, folder, claimed.like)
    return nullcontext(Unchecked(runtime, target))


def _hand_out(
    model: JobModel, winners: Sequence[Winner], measurer: Measurer, check: Checker, step_log: StepLog
) -> FinalSchedules:
    """Choose the final schedules; without compiling the model if it cannot be timed."""
    is_required = model.claimed.options.mode != ZERO_SHOT
    if is_required and step_log.attempt(Need.TIME, partial(measurer.require, Need.TIME)):
        return choose(model, winners, check, step_log)
    return records_alone(model, winners)


def _contests(decided: Decided) -> list[Contest]:
    return [*(winner.contest for winner in decided.winners), *decided.losers]


def _tasks(claimed: StageContext, winners: Sequence[Winner], losers: Sequence[Contest]) -> FinishReport:
    """Return the report section on tasks; a compiled model's counts replace these."""
    tasks_us = {winner.contest.task.name: winner.latency_us for winner in winners}
    untimed = [name for name, us in tasks_us.items() if us is None] if claimed.options.searches else []
    missing = [contest.task.name for contest in losers]
    return FinishReport(
        found=len(winners),
        of=len(winners) + len(missing),
        missing=missing,
        tasks_us={name: us for name, us in tasks_us.items() if us is not None},
        without_time=untimed,
        found_by=dict(Counter(winner.means for winner in winners)),
        without_schedule=missing,
    )


def _together(*parts: FinishReport) -> FinishReport:
    """Merge the parts into one report; if two set the same field, the later one wins."""
    values = {name: getattr(part, name) for part in parts for name in part.model_fields_set}
    return FinishReport.model_validate(values)


def _expected(claimed: StageContext) -> FinishReport:
    """Return the report section on the planner's forecast of the gain from more trials."""
    with claimed.runtime.database.session() as session:
        ended = Events(session).newest(claimed.job.id, FinishingEvent)
    return FinishReport(outlook=ended.outlook) if ended and ended.outlook else FinishReport()


def _seconds(claimed: StageContext, spent: dict[str, StepSeconds]) -> dict[str, StepSeconds]:
    """Return the seconds per step, with the import's wall time; its CPU time is not recorded."""
    with claimed.runtime.database.session() as session:
        took_sec = StageRuns(session).seconds(claimed.job.id, StageKind.IMPORT)
        total_sec = read_clock(session) - claimed.job.created_at
    found = {"import": StepSeconds(wall=round(took_sec, 2)), **spent}
    if claimed.job.trials == 0:
        rest_sec = total_sec - sum(step.wall for step in found.values())
        found["rest"] = StepSeconds(wall=round(max(0.0, rest_sec), 2))
    return found


def _store(claimed: StageContext, reason: str, report: FinishReport, url: str, steps: int) -> None:
    """Store the report and end the job. Raises Unavailable if a restore lost decisions."""
    with claimed.runtime.database.transaction() as session:
        Jobs(session).record(claimed.job.id, report=report, export_uri=url, export_deleted_at=None)
        if FinishSteps(session).forget(claimed.job.id) < steps:
            raise Unavailable(RESTORED)
        claimed.end(session, JobState.DONE, reason, DoneEvent(report=report))


def conditions(claimed: StageContext, report: FinishReport, winners: Sequence[Winner]) -> FinishReport:
    """Return the conditions of model, trials and winners; empty if nothing was timed."""
    with claimed.runtime.database.session() as session:
        parts = [stats.disturbance for stats in Rounds(session).stats(claimed.job.id)]
    trials = Disturbance.of_all(part for part in parts if part is not None)
    model = report.conditions
    bounds = sum(winner.trial.is_bound for winner in winners)
    if not trials.timed and not bounds:
        return FinishReport(conditions=model) if model else FinishReport()
    notes = [model.note] if model and model.note else []
    if trials.past_words:
        notes.append(f"While candidates were timed, {trials.past_words}.")
    if bounds:
        notes.append(f"The times of {bounds} of {len(winners)} winners were only upper bounds.")
    steady = not trials.is_uncertain and not bounds and (model is None or model.steady)
    combined = Conditions(steady=steady, note=" ".join(notes), trials=trials if trials.timed else None)
    return FinishReport(conditions=combined)


def limits(claimed: StageContext, tasks: Sequence[Contest], timed: FinishReport) -> FinishReport:
    """Return the report section on hardware limits; empty if the tuned model was not timed.

    The peak is left out if it was not measured, or if timing was disturbed, since the share of
    the peak would then be too low.
    """
    latency = timed.latency_us.get(TUNED)
    if latency is None:
        return FinishReport()
    flop = sum(task.workload.flops * task.task.weight for task in tasks)
    machine = known_machine(claimed.runtime, claimed.job.id)
    if machine is None or not timed.steady:
        return FinishReport(limits=Limits(flop=flop))
    peak_gflops = machine.gflops.get("float32", machine.core_gflops)
    return FinishReport(limits=share_of_peak(flop, latency.median, peak_gflops, claimed.options.precision))


def share_of_peak(flop: float, tuned_us: float, peak_gflops: float, precision: str) -> Limits:
    """Return one run's FLOP, the float32 peak, and the share reached (float32 models only)."""
    if precision != "float32":
        return Limits(flop=flop, peak_gflops=peak_gflops)
    gflops = flop / tuned_us / 1e3
    peak_gflops = max(peak_gflops, gflops)  # no measured peak can be below what was reached
    return Limits(flop=flop, peak_gflops=peak_gflops, peak_share=gflops / peak_gflops)
