"""Finish a job: run all steps between its last round and its report; or time it again."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from mallorn.core.artifact_uris import open_artifact
from mallorn.core.errors import Unavailable, Unschedulable
from mallorn.core.registry import REGISTRY, resolve
from mallorn.core.states import ZERO_SHOT, JobState, StageKind
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.event import BenchedEvent, DoneEvent, FinishingEvent
from mallorn.core.values.finish_report import Conditions, Limits, StepSeconds, StoredLibrary
from mallorn.core.values.manifest import DATABASE, MANIFEST, read_manifest
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_progress import progress
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import FinishSteps
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.workers import StageRuns
from mallorn.db.session import read_clock
from mallorn.workers.finish import export_directory
from mallorn.workers.finish.build_final_schedules import FinalSchedules, store_scripts
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.finish.compare_engines import check_over_range, compare_and_time_engines
from mallorn.workers.finish.decide import decide
from mallorn.workers.finish.final_candidates import Contest
from mallorn.workers.finish.job_model import JobModel, TunedModel
from mallorn.workers.finish.numeric_check import Checker, Unchecked, Verifier
from mallorn.workers.finish.order_candidates import Bench, TaskDecisions
from mallorn.workers.finish.predict_tuning_gain import fill_trials_gain
from mallorn.workers.finish.shape_dispatch import dispatch_to_next_size
from mallorn.workers.finish.step_log import ReportDraft, StepLog
from mallorn.workers.hardware_probe.run import PROBES_SEC, ensure_machine, load_measured_machine
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.measure.measurer_interface import Measurer, Need
from mallorn.workers.model_import.run import check_import
from mallorn.workers.process.leased_work import LeasedStage, LeasedWork, StageFolder, stage_folder, stage_of
from mallorn.workers.process.match_devices_and_builder import ensure_builder
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.whole_model.compiled_model import IdleEngines
from mallorn.workers.whole_model.engines import TUNED

NO_LIBRARY: Final = "The job was submitted with --no-library."
FROM_BATCH: Final = "The job was finished from a batch, and this worker has no device to check a library on."
NOT_COMPILED: Final = "The whole model was not compiled; the steps that were left out say why."
NOT_CHECKED: Final = "The library's outputs could not be checked; the steps that were left out say why."
RESTORED: Final = "the database was restored: what was decided since then is decided again"


def finish(work: LeasedWork) -> None:
    """Finish a job or, if it was done, time it again. If its model was imported by other
    code than this worker's, send the job back to import."""
    stage = stage_of(work)
    (time_again if stage.job.is_bench else finish_stage)(stage)


def finish_stage(stage: LeasedStage, answers: tuple[Measurer, Checker] | None = None) -> None:
    """Finish a leased job; `answers` (a batch's results) replaces measurer and checker."""
    job_id = stage.job.id
    with stage.runtime.stage_run(StageKind.FINISH, job_id, f"finishing job {job_id}"):
        step_log = StepLog(stage)
        with step_log.time_step("probe"):
            check_import(stage.runtime, ensure_builder(stage.runtime, stage.job))
            measuring = stage.options.mode != ZERO_SHOT and not stage.options.is_detached
            # A job without trials has no machine probe yet. Go on if the compiler fails at it.
            with suppress(ChildError, Unschedulable):
                ensure_machine(stage.runtime, job_id, PROBES_SEC, measuring)
            with stage.runtime.database.session() as session:
                stage = replace(stage, job=Jobs(session).get(job_id, None))
        started_sec = time.monotonic()
        with (
            stage_folder(stage.runtime, "finish-") as folder,
            stage.start_model_compiler(folder) as graphs,
            IdleEngines() as idle,
        ):
            measurer = answers[0] if answers else stage.runtime.measurer(stage.options, stage.device_class)
            with (
                nullcontext(answers[1])
                if answers
                else _create_checker(stage, graphs, folder, measurer, step_log)
            ) as checker:
                model = JobModel.of(stage, graphs, folder, idle)
                run = FinishRun(model, measurer, checker, step_log)
                decisions, final = run.decide()
            run.export(decisions, final)
            if final.built is None:
                run.report.no_library_reason = run.explain_missing_build()
            else:
                run.compare(decisions, final, final.built)
            run.store(decisions, final, started_sec)


@contextmanager
def _create_checker(
    stage: LeasedStage, graphs: ModelCompiler, folder: StageFolder, measurer: Measurer, step_log: StepLog
) -> Iterator[Checker]:
    """Yield a `Verifier` if the job checks outputs on a device, otherwise `Unchecked`."""
    runtime, target = stage.runtime, stage.target
    require_check = partial(measurer.require, Need.CHECK)
    if stage.options.mode == ZERO_SHOT or not step_log.attempt(Need.CHECK, require_check):
        yield Unchecked(runtime, target)
        return
    try:
        yield Verifier(runtime, target, graphs, folder, stage.device_class)
    finally:
        runtime.release_device()


@dataclass(frozen=True, slots=True)
class FinishRun(Bench):
    """The steps of one job's finish, in order; each sets its own fields of `report`."""

    report: ReportDraft = field(default_factory=ReportDraft)

    def decide(self) -> tuple[TaskDecisions, FinalSchedules]:
        """Choose and build the schedules to export, and report on them."""
        decisions, final = decide(self)
        without_schedule = [contest.task.name for contest in decisions.losers]
        tasks_us = {winner.contest.task.name: winner.latency_us for winner in final.winners}
        report = self.report
        report.tasks_us = {name: us for name, us in tasks_us.items() if us is not None}
        untimed = [name for name, us in tasks_us.items() if us is None]
        report.untimed_tasks = untimed if self.stage.options.needs_measurements else []
        report.tasks_without_winner = without_schedule
        if not self.stage.options.needs_measurements:
            report.unmeasured_schedules = decisions.answers
        report.search_methods = dict(Counter(winner.means for winner in final.winners))
        if final.compiled is None:
            report.schedule_count, report.unscheduled_workloads = len(final.winners), without_schedule
            report.workload_count = len(final.winners) + len(without_schedule)
        else:  # workloads of the compiled model
            report.schedule_count, report.unscheduled_workloads = final.compiled.found, final.compiled.missing
            report.workload_count = final.compiled.of
        if final.inside is not None:
            report.model_contests = final.inside
        return decisions, final

    def export(self, decisions: TaskDecisions, final: FinalSchedules) -> None:
        """Complete the export's directory, and store the scripts of checked winners."""
        with self.step_log.time_step("export"):
            export_directory.complete_export(self.stage, final.winners, final.directory)
            # Include the promoted winners, since rivals may be exported in their place.
            checked = [winner for winner in (*decisions.winners, *final.winners) if winner.is_checked]
            store_scripts(self.stage, checked, self.model.whole_model.graphs)

    def compare(self, decisions: TaskDecisions, final: FinalSchedules, built: TunedModel) -> None:
        """Compare the build with other engines and hardware limits; time it under load."""
        stage, report = self.stage, self.report
        with self.step_log.time_step("compare"):
            is_correct = compare_and_time_engines(self.model, built, self.step_log, report)
        export_directory.rewrite_dispatch_rules(final.directory, report.points)
        self.keep_library(final.directory, built, is_correct)
        if stage.graph_report.dynamic is None:  # a range's tasks belong to different runs
            tuned_latency = report.latency_us.get(TUNED)
            if tuned_latency is not None:
                report.limits = report_hardware_limits(
                    stage, decisions.contests, tuned_latency.median, report.is_undisturbed
                )
                fill_trials_gain(stage, decisions.winners, tuned_latency.median, report)
        for name in REGISTRY["finish_step"]:
            if getattr(stage.options, name):
                resolve("finish_step", name)(self, built, report)

    def explain_missing_build(self) -> str:
        """Return in a sentence why the finish has no compiled model to store."""
        options = self.stage.options
        if not options.library:
            return NO_LIBRARY
        if options.mode == ZERO_SHOT:
            return "A zero-shot job does not compile the model."
        return FROM_BATCH if options.is_detached else NOT_COMPILED

    def keep_library(self, directory: Path, tuned_model: TunedModel, is_correct: bool) -> None:
        """Add the compiled model to the export if its outputs were checked; otherwise
        report why not. A model with free dimensions was timed with other dispatch rules
        than the export's, so it is compiled and checked again with these."""
        if not self.stage.options.library:
            self.report.no_library_reason = NO_LIBRARY
            return

        def add() -> StoredLibrary | None:
            checked, dynamic = tuned_model, read_manifest(directory / MANIFEST).dynamic
            if dynamic is not None and dynamic.rules != dispatch_to_next_size(dynamic).rules:
                checked = self.model.compile_with_rules(tuned_model, dynamic)
                if not check_over_range(self.model, checked, self.step_log, dynamic):
                    return None
            self.model.check_alone(checked.library)
            return export_directory.add_library(directory, checked.library, checked.compiled)

        with self.step_log.time_step("export"):
            library = self.step_log.attempt("store the library", add) if is_correct else None
        if library is None:
            self.report.no_library_reason = NOT_CHECKED
        else:
            self.report.library = library

    def store(self, decisions: TaskDecisions, final: FinalSchedules, started_sec: float) -> None:
        """Upload the export, store the report and end the job. Raises Unavailable if stored
        decisions are missing because the database was restored from a backup."""
        stage, report, step_log = self.stage, self.report, self.step_log
        stage.lease.raise_if_lost()
        report.measured_by = stage.measurer_name
        report.finish_sec = round(decisions.earlier_sec + time.monotonic() - started_sec, 1)
        with stage.runtime.database.session() as session:
            import_sec = StageRuns(session).seconds(stage.job.id, StageKind.IMPORT)
            total_sec = read_clock(session) - stage.job.created_at
            finishing = Events(session).newest(stage.job.id, FinishingEvent)
            job_progress = progress(session, Jobs(session).get(stage.job.id, None))
        # The import's CPU time is not recorded.
        seconds = {"import": StepSeconds(wall=round(import_sec, 2)), **step_log.seconds}
        if stage.job.trials == 0:
            rest_sec = total_sec - sum(step.wall for step in seconds.values())
            seconds["rest"] = StepSeconds(wall=round(max(0.0, rest_sec), 2))
        report.seconds, report.skipped_steps = seconds, step_log.entries
        if finishing is not None and finishing.outlook is not None:
            report.outlook = finishing.outlook
        report.trials, report.outcomes = job_progress.spent, job_progress.outcomes
        timing_conditions = summarize_timing_conditions(stage, report.conditions, decisions.winners)
        if timing_conditions is not None:
            report.conditions = timing_conditions

        url = export_directory.upload(stage, final.directory, report)
        with stage.runtime.database.transaction() as session:
            Jobs(session).store_report_columns(
                stage.job.id, report=report, export_uri=url, export_deleted_at=None
            )
            if FinishSteps(session).forget(stage.job.id) < decisions.stored_steps:
                raise Unavailable(RESTORED)
            stage.end_stage(session, JobState.DONE, stage.job.tuning_ended, DoneEvent(report=report))


def summarize_timing_conditions(
    stage: LeasedStage, model: Conditions | None, winners: Sequence[Winner]
) -> Conditions | None:
    """Summarise for the report how other load disturbed the timings of the model, the
    trials and the winners; None if nothing was timed."""
    with stage.runtime.database.session() as session:
        parts = [stats.disturbance for stats in Rounds(session).stats(stage.job.id)]
    trials = Disturbance.of_all(part for part in parts if part is not None)
    bounds = sum(winner.trial.is_bound for winner in winners)
    if not trials.candidates and not bounds:
        return model
    notes = [model.note] if model and model.note else []
    if trials.past_description:
        notes.append(f"While candidates were timed, {trials.past_description}.")
    if bounds:
        notes.append(f"The times of {bounds} of {len(winners)} winners were only upper bounds.")
    steady = not trials.is_uncertain and not bounds and (model is None or model.steady)
    return Conditions(steady=steady, note=" ".join(notes), trials=trials if trials.candidates else None)


def report_hardware_limits(
    stage: LeasedStage, tasks: Sequence[Contest], tuned_us: float, is_steady: bool
) -> Limits:
    """Return the report section on hardware limits for a model that runs in `tuned_us`.

    The peak is left out if it was not measured, or if timing was disturbed, since the share
    of the peak would then be too low.
    """
    flop = sum(task.workload.flops * task.task.weight for task in tasks)
    machine = load_measured_machine(stage.runtime, stage.job.id)
    if machine is None or not is_steady:
        return Limits(flop=flop)
    peak_gflops = machine.gflops.get("float32", machine.core_gflops)
    return share_of_peak(flop, tuned_us, peak_gflops, stage.options.precision)


def share_of_peak(flop: float, tuned_us: float, peak_gflops: float, precision: str) -> Limits:
    """Return the report section on limits: one run's FLOP, the float32 peak and, for
    float32 models only, the share of the peak that the model reaches."""
    if precision != "float32":
        return Limits(flop=flop, peak_gflops=peak_gflops)
    gflops = flop / tuned_us / 1e3
    peak_gflops = max(peak_gflops, gflops)  # no measured peak can be below what was reached
    return Limits(flop=flop, peak_gflops=peak_gflops, peak_share=gflops / peak_gflops)


def time_again(stage: LeasedStage) -> None:
    """Compile a done job's export, time it as its finish did, and end the job again. Report
    and export stay as they are; the result, also of failed steps, is an event."""
    job = stage.job
    with (
        stage.runtime.stage_run(StageKind.FINISH, job.id, f"timing job {job.id} again"),
        stage_folder(stage.runtime, "bench-") as folder,
        stage.start_model_compiler(folder) as graphs,
        IdleEngines() as idle,
    ):
        step_log, report = StepLog(stage), ReportDraft()
        model = JobModel.of(stage, graphs, folder, idle)
        step = "compile the model with the exported schedules"
        tuned_model = step_log.attempt(step, partial(compile_export, model))
        if tuned_model is not None:
            compare_and_time_engines(model, tuned_model, step_log, report)
        report.skipped_steps = step_log.entries
    with stage.runtime.database.transaction() as session:
        Jobs(session).store_report_columns(job.id, is_bench=False)
        stage.end_stage(session, JobState.DONE, job.tuning_ended, BenchedEvent(report=report))


def compile_export(model: JobModel) -> TunedModel:
    """Compile the model with the job's exported schedules, which no cached library has."""
    directory = model.folder.path / "bench"  # no child writes there
    directory.mkdir()
    with open_artifact(model.stage.job.export_uri or "") as (store, root):
        for name in DATABASE:
            store.get_file(f"{root}/{name}", str(directory / name))
    dynamic = model.stage.graph_report.dynamic
    whole_model = replace(model.whole_model, dynamic=dispatch_to_next_size(dynamic) if dynamic else None)
    library = whole_model.folder / "bench.so"
    return TunedModel((), directory, library, whole_model.compile(directory, library))
