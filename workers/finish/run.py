"""Finishing a job: every step in order."""

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
from workers.model_import.run import settle_import
from workers.process.leased_stage import StageContext, StageFolder, leased_stage, stage_folder
from workers.process.match_devices_and_builder import settle_builder
from workers.process.worker_runtime import Runtime
from workers.subprocesses.errors import ChildError
from workers.whole_model.compiled_model import IdleEngines
from workers.whole_model.engines import TUNED

RESTORED: Final = "the database was restored: what was decided since then is decided again"


def finish(runtime: Runtime, job_id: str) -> None:
    """Take a job from its last round to verified schedules and a report, or back to a stale import."""
    with leased_stage(runtime, job_id, JobState.FINISHING) as claimed:
        if claimed is not None:
            finish_stage(claimed)


def finish_stage(claimed: StageContext, answers: tuple[Measurer, Checker] | None = None) -> None:
    """Do the same for a stage that is held; `answers` hold what a detached device measured and checked."""
    job_id = claimed.job.id
    with claimed.runtime.stage_run(StageKind.FINISH, job_id, f"finishing job {job_id}"):
        undone = StepLog(claimed)
        with undone.step("probe"):
            settle_builder(claimed.runtime, job_id)
            settle_import(claimed.runtime, job_id)
            measuring = claimed.options.mode != ZERO_SHOT and not claimed.options.is_detached
            # A job without trials has no machine yet. A compiler that fails here makes no defaults either.
            with suppress(ChildError, Unschedulable):
                ensure_machine(claimed.runtime, job_id, PROBES_SEC, measuring)
            with claimed.runtime.database.session() as session:
                claimed = replace(claimed, job=Jobs(session).get(job_id, None))
        _finish(claimed, undone, answers)


def _finish(claimed: StageContext, undone: StepLog, answers: tuple[Measurer, Checker] | None) -> None:
    started = time.monotonic()
    why = claimed.job.tuning_ended
    with (
        stage_folder(claimed.runtime, "finish-") as folder,
        claimed.graphs(folder) as graphs,
        IdleEngines() as idle,
    ):
        measurer = answers[0] if answers else claimed.runtime.measurer(claimed.options, claimed.like)
        checker = nullcontext(answers[1]) if answers else _checker(claimed, graphs, folder, measurer, undone)
        with checker as check:
            model = JobModel.of(claimed, graphs, folder, idle)
            guessed = _guess(claimed, model, measurer, check, undone)
            if guessed is not None:
                decided, handout = guessed
            else:
                with undone.step("decide"):
                    decided = decide_all(claimed, why, measurer, check)
                    handout = _hand_out(model, decided.winners, measurer, check, undone)
        # A schedule that was left out, so that the model compiles, counts as no schedule.
        names = {winner.contest.task.name for winner in handout.winners}
        kept = [each for each in decided.winners if each.contest.task.name in names]
        dropped = [each.contest for each in decided.winners if each.contest.task.name not in names]
        decided = replace(decided, winners=kept, losers=[*decided.losers, *dropped])
        with undone.step("export"):
            complete_export(claimed, handout.winners, handout.directory)
            # Those that were promoted alone, too: a rival may be handed out in their place.
            shown = [winner for winner in (*decided.winners, *handout.winners) if winner.is_checked]
            keep_scripts(claimed, shown, graphs)
        by = FinishReport(measured_by=claimed.measured_by)
        told = _tasks(claimed, handout.winners, decided.losers), decided.answers
        parts = [by, _expected(claimed), *told, handout.report]
        if handout.built is not None:
            with undone.step("compare"):
                timed = compare(model, handout.built, undone)
            parts.append(timed)
            settle_rules(handout.directory, timed.points)
            if claimed.graph.dynamic is None:  # the tasks of a range belong to no one run
                parts.append(limits(claimed, _contests(decided), timed))
                parts.append(what_trials_win(claimed, decided.winners, timed))
            parts.append(beside_others(model, decided.winners, handout, check, undone))
        claimed.lease.check()
        finish_sec = round(decided.earlier_sec + time.monotonic() - started, 1)
        seconds = _seconds(claimed, undone.seconds)
        ended = FinishReport(finish_sec=finish_sec, seconds=seconds, not_done=undone.entries)
        with claimed.runtime.database.session() as session:
            how_far = progress(session, Jobs(session).get(claimed.job.id, None))
        trials = FinishReport(trials=how_far.spent, outcomes=how_far.outcomes)
        report = _together(*parts, trials, ended)
        report = _together(report, conditions(claimed, report, decided.winners))
        steps = len(_contests(decided)) if claimed.options.searches and guessed is None else 0
        _store(claimed, why, report, upload(claimed, handout.directory, report), steps)


def _guess(
    claimed: StageContext, model: JobModel, measurer: Measurer, check: Checker, undone: StepLog
) -> tuple[Decided, FinalSchedules] | None:
    """Only where the measurer can time the whole model."""
    try:
        measurer.require(Need.TIME)
    except MallornError:
        return None
    return guess_inside(claimed, model, check, undone)


def _checker(
    claimed: StageContext, graphs: ModelCompiler, folder: StageFolder, measurer: Measurer, undone: StepLog
) -> AbstractContextManager[Checker]:
    """What checks numbers on a device, where the measurer has one and the job asks for it."""
    runtime, target, asked = claimed.runtime, claimed.target, claimed.options.mode != ZERO_SHOT
    if asked and undone.attempt(Need.CHECK, partial(measurer.require, Need.CHECK)):
        return verifier(runtime, target, graphs, folder, claimed.like)
    return nullcontext(Unchecked(runtime, target))


def _hand_out(
    model: JobModel, winners: Sequence[Winner], measurer: Measurer, check: Checker, undone: StepLog
) -> FinalSchedules:
    """Compile the model only where the measurer can time it, and the job asks for it."""
    asked = model.claimed.options.mode != ZERO_SHOT
    if asked and undone.attempt(Need.TIME, partial(measurer.require, Need.TIME)):
        return choose(model, winners, check, undone)
    return records_alone(model, winners)


def _contests(decided: Decided) -> list[Contest]:
    return [*(winner.contest for winner in decided.winners), *decided.losers]


def _tasks(claimed: StageContext, winners: Sequence[Winner], losers: Sequence[Contest]) -> FinishReport:
    """`found` and `of` count the winners; the counts of a compiled model replace them."""
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
    """All parts in one report; where two set a field, the later one counts."""
    said = {name: getattr(part, name) for part in parts for name in part.model_fields_set}
    return FinishReport.model_validate(said)


def _expected(claimed: StageContext) -> FinishReport:
    """What the planner expected of more trials."""
    with claimed.runtime.database.session() as session:
        ended = Events(session).newest(claimed.job.id, FinishingEvent)
    return FinishReport(outlook=ended.outlook) if ended and ended.outlook else FinishReport()


def _seconds(claimed: StageContext, spent: dict[str, StepSeconds]) -> dict[str, StepSeconds]:
    """With the import, of which only the wall's time is known: another worker may have done it."""
    with claimed.runtime.database.session() as session:
        took_sec = StageRuns(session).seconds(claimed.job.id, StageKind.IMPORT)
        total_sec = read_clock(session) - claimed.job.created_at
    found = {"import": StepSeconds(wall=round(took_sec, 2)), **spent}
    if claimed.job.trials == 0:
        rest_sec = total_sec - sum(step.wall for step in found.values())
        found["rest"] = StepSeconds(wall=round(max(0.0, rest_sec), 2))
    return found


def _store(claimed: StageContext, why: str, report: FinishReport, url: str, steps: int) -> None:
    """Raises Unavailable where a restore of the database took away some of what was decided."""
    with claimed.runtime.database.transaction() as session:
        Jobs(session).record(claimed.job.id, report=report, export_uri=url, export_deleted_at=None)
        if FinishSteps(session).forget(claimed.job.id) < steps:
            raise Unavailable(RESTORED)
        claimed.end(session, JobState.DONE, why, DoneEvent(report=report))


def conditions(claimed: StageContext, report: FinishReport, winners: Sequence[Winner]) -> FinishReport:
    """The report's conditions, with those of the trials and winners; none of a job that timed nothing."""
    with claimed.runtime.database.session() as session:
        parts = [stats.disturbance for stats in Rounds(session).stats(claimed.job.id)]
    trials = Disturbance.of_all(part for part in parts if part is not None)
    model = report.conditions
    bounds = sum(winner.trial.is_bound for winner in winners)
    if not trials.timed and not bounds:
        return FinishReport(conditions=model) if model else FinishReport()
    told = [model.note] if model and model.note else []
    if trials.past_words:
        told.append(f"While candidates were timed, {trials.past_words}.")
    if bounds:
        told.append(f"The times of {bounds} of {len(winners)} winners were only upper bounds.")
    steady = not trials.is_uncertain and not bounds and (model is None or model.steady)
    both = Conditions(steady=steady, note=" ".join(told), trials=trials if trials.timed else None)
    return FinishReport(conditions=both)


def limits(claimed: StageContext, tasks: Sequence[Contest], timed: FinishReport) -> FinishReport:
    """The limits' part of the report, where the tuned model was timed.

    Without the peak where nobody has measured it, and where the host was busy: what others
    took of it would make us look far.
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
    """The operations of one run beside the peak, which is float32's: it says nothing of narrower types."""
    if precision != "float32":
        return Limits(flop=flop, peak_gflops=peak_gflops)
    gflops = flop / tuned_us / 1e3
    peak_gflops = max(peak_gflops, gflops)  # no measured peak can be below what was reached
    return Limits(flop=flop, peak_gflops=peak_gflops, peak_share=gflops / peak_gflops)
