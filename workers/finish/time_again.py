"""Time an ended job's exported schedules again, on a device like the one that measured them."""

from dataclasses import replace
from functools import partial
from typing import Final

from mallorn.core.artifact_uris import open_artifact
from mallorn.core.errors import Unavailable
from mallorn.core.states import JobState, StageKind
from mallorn.core.values.event import BenchedEvent, BenchStartedEvent
from mallorn.core.values.finish_report import BenchResult
from mallorn.core.values.manifest import DATABASE
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.session import read_clock
from mallorn.workers.finish.compare_engines import compare_and_time_engines
from mallorn.workers.finish.job_model import JobModel, TunedModel
from mallorn.workers.finish.shape_dispatch import dispatch_to_next_size
from mallorn.workers.finish.step_log import ReportDraft, StepLog
from mallorn.workers.process.leased_stage import StageContext, stage_folder
from mallorn.workers.tvm.code_digest import current_builder_name
from mallorn.workers.whole_model.compiled_model import IdleEngines

COMPILE: Final = "compile the model with the exported schedules"


def is_bench_requested(stage: StageContext) -> bool:
    """Return whether the job is only to be timed again: a bench began and has not ended."""
    with stage.runtime.database.session() as session:
        return Events(session).is_newer(stage.job.id, BenchStartedEvent, BenchedEvent)


def time_again(stage: StageContext) -> None:
    """Compile an ended job's export, time it as its finish did, and end the job again.

    The report and the export stay as they are; the result is an event. A step that fails
    is part of the result.
    """
    job = stage.job
    with (
        stage.runtime.stage_run(StageKind.FINISH, job.id, f"timing job {job.id} again"),
        stage_folder(stage.runtime, "bench-") as folder,
        stage.start_model_compiler(folder) as graphs,
        IdleEngines() as idle,
    ):
        step_log, report = StepLog(stage), ReportDraft()
        model = JobModel.of(stage, graphs, folder, idle)
        built = step_log.attempt(COMPILE, partial(_compile_export, model))
        if built is not None:
            compare_and_time_engines(model, built, step_log, report)
    with stage.runtime.database.transaction() as session:
        result = BenchResult(
            latency_us=report.latency_us,
            points=report.points,
            conditions=report.conditions,
            error_vs_untuned=report.error_vs_untuned,
            error_vs_onnxruntime=report.error_vs_onnxruntime,
            host_class="" if job.context_id is None else Contexts(session).get(job.context_id).host_class,
            built_by=current_builder_name(),
            measured_at=read_clock(session),
            skipped_steps=step_log.entries,
        )
        stage.end_stage(session, JobState.DONE, job.tuning_ended, BenchedEvent(result=result))


def _compile_export(model: JobModel) -> TunedModel:
    uri = model.stage.job.export_uri
    if uri is None:
        raise Unavailable(
            "the job's export was deleted", hint=f"mallorn resume {model.stage.job.id} --trials 1"
        )
    directory = model.whole_model.folder / "bench"
    directory.mkdir()
    with open_artifact(uri) as (store, root):
        for name in DATABASE:
            store.get_file(f"{root}/{name}", str(directory / name))
    # Not from the cache of libraries, which is keyed by winners.
    dynamic = model.stage.graph_report.dynamic
    whole_model = replace(model.whole_model, dynamic=dispatch_to_next_size(dynamic) if dynamic else None)
    library = directory.with_suffix(".so")
    return TunedModel((), directory, library, whole_model.compile(directory, library))
