"""Imports a job's model: bytes to tasks, in a killable child."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.jobs import Jobs
from db.repositories.tasks import NewTask, Tasks
from db.repositories.trials import Trials
from db.repositories.workloads import NewWorkload, Workloads
from mallorn.core.errors import InvalidModel, InvalidRequest
from mallorn.core.states import JobState, StageKind
from mallorn.core.values.event import ImportedEvent
from workers.children.errors import ChildFailed
from workers.faces.graphs import Extraction, ModelTask
from workers.faces.values import pack_arguments
from workers.host.courtesy import giving_way
from workers.slot.runtime import Runtime
from workers.slot.stage import Stage, stage
from workers.tvm.recipes import recipe_for, stored_recipe

NAMES_TOLD: Final = 12


def import_job(runtime: Runtime, job_id: str) -> bool:
    """Import the model of a job; True when the job can be planned."""
    with runtime.database.transaction() as session:
        Jobs(session).move(job_id, [JobState.QUEUED], JobState.IMPORTING)
    with stage(runtime, job_id, JobState.IMPORTING) as claimed:
        if claimed is not None:
            with runtime.stage_run(StageKind.IMPORT, job_id, f"importing the model of job {job_id}"):
                found = _extract(claimed)
                with runtime.database.transaction() as session:
                    _store(session, claimed, found)
            return True
    return False


def _extract(claimed: Stage) -> Extraction:
    """What the importer found, recipe included: from here on the recipe is a value stored with the job."""
    config = claimed.runtime.settings
    claimed.runtime.warm_up()
    with TemporaryDirectory(prefix="mallorn-import-") as scratch:
        model = claimed.model_file(Path(scratch))
        recipe = stored_recipe(recipe_for(claimed.options.recipe, claimed.target, claimed.options.precision))
        with claimed.runtime.graphs(claimed.target.num_cores) as child, giving_way(child):
            try:
                found = child.extract.within(
                    config.import_timeout_sec,
                    str(model),
                    claimed.target.text,
                    recipe,
                    claimed.options.input_shapes,
                )
            except ChildFailed as error:
                raise InvalidModel(f"TVM cannot turn this model into tasks: {error.message}") from None
    return replace(found, graph=found.graph.model_copy(update={"recipe": recipe}))


def _store(session: Session, claimed: Stage, found: Extraction) -> None:
    _check_only(claimed.options.only, [task.name for task in found.tasks])
    new = [new_workload(task, found.graph.tvm_version) for task in found.tasks]
    ids = Workloads(session).ensure_many(new)
    known = Trials(session).known(list(ids.values()), claimed.job.target_id)
    tasks = [_task(index, task, ids[task.key], known) for index, task in enumerate(found.tasks)]
    Tasks(session).add_many(claimed.job.id, tasks)
    Jobs(session).record(claimed.job.id, graph=found.graph)
    told = ImportedEvent(tasks=len(tasks), known=sum(task.known_at_start for task in tasks))
    claimed.end(session, JobState.TUNING, "", told)


def _check_only(patterns: Sequence[str], names: Sequence[str]) -> None:
    """Raise InvalidRequest for patterns that leave nothing to tune, with the names that come closest."""
    if not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
        return
    stems = [pattern.strip("*?") for pattern in patterns]
    likeness = {name: max(SequenceMatcher(None, stem, name).ratio() for stem in stems) for name in names}
    closest = sorted(names, key=lambda name: -likeness[name])
    told = ", ".join(closest[:NAMES_TOLD]) + (", ..." if len(closest) > NAMES_TOLD else "")
    raise InvalidRequest(f"no task matches {', '.join(patterns)}", hint=f"--only one of: {told}")


def _task(index: int, task: ModelTask, workload_id: int, known: dict[int, int]) -> NewTask:
    rows = known.get(workload_id, 0)
    return NewTask(index, task.name, task.weight, workload_id, known_at_start=rows)


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
