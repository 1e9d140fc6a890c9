"""Imports a job's model: bytes to tasks, in a killable child."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.job_events_and_warnings import NewJobWarning, Warnings
from db.repositories.jobs import Jobs
from db.repositories.measuring_contexts import Contexts
from db.repositories.replaced_code import IMPORTED_ANEW, ReplacedCode
from db.repositories.targets import Targets
from db.repositories.tasks import NewTask, Tasks
from db.repositories.trials import Trials
from db.repositories.workers import Workers
from db.repositories.workloads import NewWorkload, Workloads, tir_of
from db.tables import Task, Workload
from mallorn.core.errors import ClassRefused, InvalidModel, InvalidRequest, Unavailable
from mallorn.core.job_options import KeptOptions
from mallorn.core.stand_in_measurers import SAY_SO, UNSAID, measured_target, stand_in
from mallorn.core.states import JobState, StageKind
from mallorn.core.values.event import ImportedEvent
from mallorn.core.values.graph_report import GraphReport, StoredRecipe
from workers.host.pause_while_timing import paused_while_timing
from workers.interfaces.model_compiler import Extraction, ModelTask
from workers.interfaces.tensor_arguments import pack_arguments, unpack_arguments
from workers.measure.base import Measurer, VirtualDevice
from workers.process.leased_stage import StageContext, leased_stage, stage_folder
from workers.process.match_devices_and_builder import builder_of, wait_for_builder
from workers.process.worker_runtime import Runtime
from workers.subprocesses.errors import ChildFailed
from workers.tvm.code_digest import code_digest
from workers.tvm.graph_recipes import is_form_of, left_out, recipe_for, stored_recipe

NAMES_TOLD: Final = 12
NAMES_COMPARED: Final = 200
COMPARED_CHARS: Final = 60
CHECK: Final = "check-model MODEL   (it comes with the package onnx; what is imported: docs/models.md)"


def import_job(runtime: Runtime, job_id: str) -> str | None:
    """Import the model of the job whose turn it is by this message; its id, when it can be planned."""
    with leased_stage(runtime, job_id, JobState.IMPORTING) as claimed:
        if claimed is None:
            return None
        with runtime.stage_run(StageKind.IMPORT, job_id, f"importing the model of job {job_id}"):
            if (ours := builder_of(claimed.options)) is not None:
                with runtime.database.session() as session:
                    wait_for_builder(session, job_id, ours, runtime.name, tuning=False)
            measurer = runtime.measurer(claimed.options)
            claimed = _on_its_target(claimed, measurer)
            found = _extract(claimed)
            asked_for = _asked_for(claimed.options.only, found.tasks)
            instead = measurer.stand_in(asked_for, claimed.target, claimed.options)
            if instead is not None and not measurer.stands_in:
                raise ClassRefused(UNSAID, hint=SAY_SO)
            with runtime.database.transaction() as session:
                _store(session, claimed, found)
                if instead is not None:
                    _bind(session, claimed, instead)
        return job_id
    return None


def _on_its_target(claimed: StageContext, measurer: Measurer) -> StageContext:
    """What measures tells by its class whether it stands in for devices, whatever name the job gave it."""
    if measurer.stands_in in ("", stand_in(claimed.target)):
        return claimed
    target = measured_target(claimed.target, measurer.stands_in)
    with claimed.runtime.database.transaction() as session:
        Jobs(session).retarget(claimed.job.id, Targets(session).ensure(target).id)
        return replace(claimed, job=Jobs(session).get(claimed.job.id, None), target=target)


def _extract(claimed: StageContext) -> Extraction:
    """What the importer found, recipe included: from here on the recipe is a value stored with the job.

    A job that is imported again because of a pass leaves that pass out.
    """
    config = claimed.runtime.settings
    claimed.runtime.warm_up(claimed.job.id)
    recipe = stored_recipe(recipe_for(claimed.options.recipe, claimed.target, claimed.options.precision))
    if claimed.graph.code == code_digest() and is_form_of(claimed.graph.recipe, recipe):
        recipe = claimed.graph.recipe
    if (known := _found_before(claimed, recipe)) is not None:
        return known
    with stage_folder(claimed.runtime, "import-") as folder:
        model = claimed.model_file(folder.path)
        with claimed.graphs(folder) as child, paused_while_timing(child):
            try:
                given = str(model), claimed.target.text, recipe, claimed.options.input_shapes
                if bounds := claimed.options.dynamic:
                    found = child.extract_range.within(config.import_timeout_sec, *given, bounds)
                else:
                    found = child.extract.within(config.import_timeout_sec, *given)
            except ChildFailed as error:
                message = f"TVM cannot turn this model into tasks: {error.headline}"
                raise InvalidModel(message, hint=error.hint or CHECK) from None
    return replace(found, graph=found.graph.model_copy(update={"code": code_digest()}))


def _found_before(claimed: StageContext, recipe: StoredRecipe) -> Extraction | None:
    """What an earlier import of the same model for the same target found, by the same code."""
    asked = claimed.options
    with claimed.runtime.database.session() as session:
        for job in Jobs(session).imported_before(claimed.job):
            options, graph = KeptOptions.model_validate(job.options), job.graph
            bound = options.input_shapes, options.dynamic, options.is_private
            alike = bound == (asked.input_shapes, asked.dynamic, asked.is_private)
            if graph and alike and graph.code == code_digest() and is_form_of(graph.recipe, recipe):
                return Extraction(
                    graph, tuple(_model_task(*each) for each in Tasks(session).programs(job.id))
                )
    return None


def _model_task(task: Task, workload: Workload) -> ModelTask:
    return ModelTask(
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


def _asked_for(patterns: Sequence[str], tasks: Sequence[ModelTask]) -> dict[str, str]:
    """The names of the tasks to tune, by their keys. Raises InvalidRequest where these are none, with the
    names that come closest."""
    found = {
        task.key: task.name
        for task in tasks
        if not patterns or any(fnmatchcase(task.name, pattern) for pattern in patterns)
    }
    if patterns and not found:
        # A comparison takes the product of both lengths: a few of each do for a hint.
        stems = [pattern.strip("*?")[:COMPARED_CHARS] for pattern in patterns[:NAMES_TOLD]]
        names = [task.name[:COMPARED_CHARS] for task in tasks[:NAMES_COMPARED]]
        likeness = {name: max(SequenceMatcher(None, stem, name).ratio() for stem in stems) for name in names}
        closest = sorted(names, key=lambda name: -likeness[name])
        told = ", ".join(closest[:NAMES_TOLD]) + (", ..." if len(closest) > NAMES_TOLD else "")
        raise InvalidRequest(
            f"no task matches {', '.join(patterns[:NAMES_TOLD])}", hint=f"--only one of: {told}"
        )
    return found


def _bind(session: Session, claimed: StageContext, instead: VirtualDevice) -> None:
    """Give the job the measuring context that it would have of its first device."""
    job, endpoint, options = claimed.job, instead.endpoint, claimed.options
    host = endpoint.host_class, endpoint.tvm_version, endpoint.threads
    context = Contexts(session).ensure(job.target_id, *host, options.timing())
    Jobs(session).bind_context(job.id, context.id)
    if instead.lacks:
        Warnings(session).add(
            job.id, NewJobWarning(f"measurer {options.measurer}", instead.lacks, instead.hint)
        )


def _store(session: Session, claimed: StageContext, found: Extraction) -> None:
    new = [new_workload(task, found.graph.tvm_version) for task in found.tasks]
    ids = Workloads(session).ensure_many(new, private=claimed.options.is_private, code=code_digest())
    known = Trials(session).known(list(ids.values()), claimed.job.target_id)
    tasks = [
        NewTask(index, task.name, task.weight, ids[task.key], known_at_start=known.get(ids[task.key], 0))
        for index, task in enumerate(found.tasks)
    ]
    Tasks(session).replace(claimed.job.id, tasks)
    Jobs(session).record(claimed.job.id, graph=found.graph)
    troubles = {step.name: step.error for step in found.graph.steps if step.error}
    for name, why in left_out(found.graph.recipe).items():
        troubles[name] = f"it is left out of this network: {why}"
    for name, trouble in troubles.items():
        Warnings(session).add(claimed.job.id, NewJobWarning(f"graph pass {name}", trouble))
    told = ImportedEvent(tasks=len(tasks), known=sum(task.known_at_start for task in tasks))
    claimed.end(session, JobState.TUNING, "", told)


def new_workload(task: ModelTask, tvm_version: str) -> NewWorkload:
    """A task's program as the dataset keeps it."""
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


def settle_import(runtime: Runtime, job_id: str) -> None:
    """See that a job's tasks were made by the code of this worker.

    Raises Unavailable where they were not: the job waits for a live worker with that code, or for its new
    import.
    """
    with runtime.database.transaction() as session:
        Jobs(session).lock_job(job_id)
        job = Jobs(session).get(job_id, None)
        code = (job.graph or GraphReport()).code
        if code == code_digest():
            return
        ours = builder_of(KeptOptions.model_validate(job.options))
        context = None if job.context_id is None else Contexts(session).get(job.context_id)
        is_ours = ours is not None and context is not None and context.builder == ours
        waits = not is_ours and any(each.endswith(f"+{code}") for each in Workers(session).builders())
        if not waits:
            ReplacedCode(session).import_anew(job_id)
    if waits:
        words = (
            f"the tasks of job {job_id} were made by code {code}, and worker {runtime.name} has other code"
        )
        raise Unavailable(f"{words}; it waits for another", hint="mallorn workers")
    raise Unavailable(IMPORTED_ANEW)
