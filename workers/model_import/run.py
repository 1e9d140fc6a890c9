"""A job's import stage: a child process reads the model file, and the tasks are stored."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import ClassRefused, InvalidModel, InvalidRequest, Unavailable
from mallorn.core.job_options import KeptOptions
from mallorn.core.states import JobState, StageKind
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.event import ImportedEvent
from mallorn.core.values.graph_report import GraphReport, StoredRecipe
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from mallorn.db.repositories.job_transitions import IMPORTED_ANEW, ReplacedCode
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import NewTask, Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workers import Workers
from mallorn.db.repositories.workloads import NewWorkload, Workloads, tir_of
from mallorn.db.tables import Job
from mallorn.workers.host.code_digest import code_digest, is_code_of
from mallorn.workers.host.pause_while_timing import paused_while_timing
from mallorn.workers.interfaces.model_compiler import REGION, Extraction, ModelCompiler, ModelTask, Shapes
from mallorn.workers.interfaces.tensor_arguments import pack_arguments, unpack_arguments
from mallorn.workers.measure.measurer_interface import DECLARE, UNDECLARED
from mallorn.workers.process.leased_work import LeasedStage, LeasedWork, stage_folder, stage_of
from mallorn.workers.process.match_devices_and_builder import builder_of, context_without_builder
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.subprocesses.errors import ChildFailed
from mallorn.workers.tvm.network.graph_recipes import is_reduced_form_of, recipe_for, skipped_passes

RANGE_WITH_SAMPLES: Final = "inputs for checks have one size, and the job tunes a range of shapes"
WITHOUT_SAMPLES: Final = "leave --inputs out, or give --input-shape in place of --dynamic"
MOST_NAMES: Final = 12
NAMES_COMPARED: Final = 200
COMPARED_CHARS: Final = 60
PROVIDER: Final = "mallorn_runtime.onnxruntime.session_options(DIR)   (runs both; docs/runtime.md)"
CHECK: Final = "check-model MODEL   (it comes with the package onnx; what is imported: docs/models.md)"


def import_job(work: LeasedWork) -> None:
    """Import a job's model, and store its tasks."""
    stage, runtime, job_id = stage_of(work), work.runtime, work.job.id
    with runtime.stage_run(StageKind.IMPORT, job_id, f"importing the model of job {job_id}"):
        if (builder := builder_of(stage.options, stage.target)) is not None:
            with runtime.database.session() as session:
                context_without_builder(session, stage.job, builder, runtime.name, tuning=False)
        measurer = runtime.measurer(stage.options)
        if measurer.virtual_device not in ("", stage.target.virtual_device):
            target = add_virtual_device(stage.target, measurer.virtual_device)
            with runtime.database.transaction() as session:
                Jobs(session).retarget(job_id, Targets(session).ensure(target).id)
                stage = replace(stage, job=Jobs(session).get(job_id, None), target=target)
        extraction = extract_tasks(stage)
        selected_tasks = _select_tasks(stage.options.only, extraction.tasks)
        device = measurer.virtual_device_for(selected_tasks, stage.target, stage.options)
        if device is not None and not measurer.virtual_device:
            raise ClassRefused(UNDECLARED, hint=DECLARE)
        with runtime.database.transaction() as session:
            _store(session, stage, extraction)
            if device is not None:  # bind the job to the virtual device's measuring context
                endpoint, options = device.endpoint, stage.options
                context = Contexts(session).ensure(
                    stage.job.target_id,
                    endpoint.host_class,
                    endpoint.tvm_version,
                    endpoint.threads,
                    options.timing(stage.target),
                )
                Jobs(session).bind_context(job_id, context.id)
                if device.lacks:
                    warning = NewJobWarning(f"measurer {options.measurer}", device.lacks, device.hint)
                    Warnings(session).add(job_id, warning)


def extract_tasks(stage: LeasedStage) -> Extraction:
    """Import the model, or reuse an import by the same code with the same options. Passes
    that an earlier import of this job left out stay left out. Raises InvalidModel."""
    stage.runtime.warm_up(stage.job.id)
    recipe = recipe_for(stage.options.recipe, stage.target, stage.options.precision)
    if stage.graph_report.code == code_digest() and is_reduced_form_of(stage.graph_report.recipe, recipe):
        recipe = stage.graph_report.recipe
    bounds = stage.options.input_shapes, stage.options.dynamic, stage.options.private
    with stage.runtime.database.session() as session:
        for job in Jobs(session).list_earlier_imports(stage.job):
            options, graph = KeptOptions.model_validate(job.options), job.graph
            has_same_bounds = bounds == (options.input_shapes, options.dynamic, options.private)
            if not graph or graph.code != code_digest():
                continue
            if has_same_bounds and is_reduced_form_of(graph.recipe, recipe):
                programs = Tasks(session).list_with_workloads(job.id)
                tasks = [
                    ModelTask(
                        name=task.name,
                        weight=task.weight,
                        key=workload.key,
                        op=workload.op,
                        structure=workload.structure,
                        flops=workload.flops,
                        tir=tir_of(workload),
                        args=unpack_arguments(workload.args),
                        extents=tuple(workload.features["extents"]),
                    )
                    for task, workload in programs
                ]
                return Extraction(graph, tuple(tasks))
    with stage_folder(stage.runtime, "import-") as folder:
        model = stage.copy_model_files(folder.path)
        with stage.start_model_compiler(folder) as child, paused_while_timing(child):
            try:
                if stage.options.dynamic and stage.find_samples(model) is not None:
                    raise InvalidModel(RANGE_WITH_SAMPLES, hint=WITHOUT_SAMPLES)
                request = str(model), stage.target.text, recipe, stage.options.input_shapes
                limit_sec = stage.runtime.settings.import_timeout_sec
                if ranges := stage.options.dynamic:
                    extraction = child.extract_range.call_with_limit(limit_sec, *request, ranges)
                else:
                    extraction = extract_or_divide(child, folder.compiler_folder, limit_sec, *request)
                    if (samples := stage.find_samples(model)) is not None:  # wrong ones fail the job at once
                        folders = str(samples), str(folder.compiler_folder)
                        child.split_samples(str(model), *folders, stage.options.input_shapes, None)
            except ChildFailed as error:
                message = f"TVM cannot turn this model into tasks: {error.headline}"
                raise InvalidModel(message, hint=error.hint or CHECK) from None
    return replace(extraction, graph=extraction.graph.model_copy(update={"code": code_digest()}))


def extract_or_divide(
    child: ModelCompiler,
    folder: Path,
    limit_sec: float,
    model: str,
    target: str,
    recipe: StoredRecipe,
    shapes: Shapes,
) -> Extraction:
    """Import a model, or else its largest part that can be compiled: onnxruntime runs the rest.
    Raises InvalidModel or ChildFailed, the error of the whole model, if there is no such part."""
    try:
        return child.extract.call_with_limit(limit_sec, model, target, recipe, shapes)
    except (InvalidModel, ChildFailed):
        path, region = str(folder / REGION), None
        if parse_target(target).runs_on_cores:
            with suppress(ChildFailed):  # the error of the whole model says more
                region = child.find_region.call_with_limit(limit_sec, model, target, shapes, path)
        if region is None:
            raise
        extraction = child.extract.call_with_limit(limit_sec, path, target, recipe, {})
    return replace(extraction, graph=extraction.graph.model_copy(update={"region": region}))


def _select_tasks(patterns: Sequence[str], tasks: Sequence[ModelTask]) -> dict[str, str]:
    """Return names of tasks to tune by key; all without patterns. Raises InvalidRequest."""
    names_by_key = {
        task.key: task.name
        for task in tasks
        if not patterns or any(fnmatchcase(task.name, pattern) for pattern in patterns)
    }
    if patterns and not names_by_key:
        # A comparison takes time in proportion to both lengths: a hint needs only a few names.
        stems = [pattern.strip("*?")[:COMPARED_CHARS] for pattern in patterns[:MOST_NAMES]]
        names = [task.name[:COMPARED_CHARS] for task in tasks[:NAMES_COMPARED]]
        likeness = {name: max(SequenceMatcher(None, stem, name).ratio() for stem in stems) for name in names}
        closest = sorted(names, key=lambda name: -likeness[name])
        examples = ", ".join(closest[:MOST_NAMES]) + (", ..." if len(closest) > MOST_NAMES else "")
        raise InvalidRequest(
            f"no task matches {', '.join(patterns[:MOST_NAMES])}", hint=f"--only one of: {examples}"
        )
    return names_by_key


def _store(session: Session, stage: LeasedStage, extraction: Extraction) -> None:
    new = [new_workload(task, extraction.graph.tvm_version) for task in extraction.tasks]
    ids = Workloads(session).ensure_many(new, private=stage.options.private, code=code_digest())
    trials = Trials(session, stage.job).count_learnable_by_workload(list(ids.values()), stage.job.target_id)
    tasks = [
        NewTask(index, task.name, task.weight, ids[task.key], known_at_start=trials.get(ids[task.key], 0))
        for index, task in enumerate(extraction.tasks)
    ]
    Tasks(session).replace(stage.job.id, tasks)
    Jobs(session).store_report_columns(stage.job.id, graph=extraction.graph)
    troubles = {step.name: step.error for step in extraction.graph.steps if step.error}
    for name, reason in skipped_passes(extraction.graph.recipe).items():
        troubles[name] = f"it is left out of this network: {reason}"
    for name, trouble in troubles.items():
        Warnings(session).add(stage.job.id, NewJobWarning(f"graph pass {name}", trouble))
    if extraction.graph.region is not None:
        warning = NewJobWarning("compiled in part", extraction.graph.region.sentence, PROVIDER)
        Warnings(session).add(stage.job.id, warning)
    event = ImportedEvent(tasks=len(tasks), known_measurements=sum(task.known_at_start for task in tasks))
    stage.end_stage(session, JobState.TUNING, "", event)


def new_workload(task: ModelTask, tvm_version: str) -> NewWorkload:
    """Convert a task to the database row that stores its program."""
    return NewWorkload(
        key=task.key,
        name=task.name,
        op=task.op,
        structure=task.structure,
        flops=task.flops,
        tir=task.tir,
        args=pack_arguments(task.args),
        features={"extents": list(task.extents)},
        tvm_version=tvm_version,
    )


def check_import(runtime: Runtime, job: Job) -> None:
    """Check that the job was imported by the code that this worker runs. Raises Unavailable
    if not: the job waits for a live worker with that code, or is imported again."""
    if job.graph is not None and job.graph.code == code_digest():
        return
    with runtime.database.transaction() as session:
        Jobs(session).lock_jobs([job.id])
        job = Jobs(session).get(job.id, None)
        code = (job.graph or GraphReport()).code
        if code == code_digest():
            return
        target = Target(Targets(session).get(job.target_id).text)
        builder = builder_of(KeptOptions.model_validate(job.options), target)
        context = None if job.context_id is None else Contexts(session).get(job.context_id)
        is_ours = builder is not None and context is not None and context.builder == builder
        others = Workers(session).builders()
        waits = not is_ours and any(is_code_of(code, name) for name in others)
        if not waits:
            ReplacedCode(session).import_again(job.id)
    if waits:
        raise Unavailable(
            f"code {code} extracted the tasks of job {job.id}, and worker {runtime.name} has other code. "
            "The job waits for a worker with that code",
            hint="mallorn workers",
        )
    raise Unavailable(IMPORTED_ANEW)
