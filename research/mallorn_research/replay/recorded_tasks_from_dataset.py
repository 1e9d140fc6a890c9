"""Read recorded tasks from a dataset and adapt their sketches (traces with open decisions).

A sketch's key is a hash of its trace, which contains no loop extents. So workloads that
differ only in sizes share a sketch row, with extents and locations of the first one.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import NotFound
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.trials import MeasuredTask, MeasuredTasks
from mallorn.db.repositories.workloads import Sketches, Workloads
from mallorn.db.session import Database
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn.workers.round.loaded_round import descriptors_of
from mallorn_research.replay.recording_file import RecordedTask

# Fields of a device's description to record: no host names, no addresses.
HOST_FACTS: Final[set[str]] = {"cpu_model", "cores", "governor", "machine", "accelerator"}


def fit_sketch_to_candidates(sketch: Sketch, candidates: Sequence[Candidate]) -> Sketch:
    """Return the sketch with the loop extents and compute locations of these candidates."""
    choices: list[Choice] = []
    for choice, (columns, _) in zip(sketch.choices, sketch.decision_slices, strict=True):
        decisions = [candidate.decisions[columns] for candidate in candidates]
        if choice.kind is ChoiceKind.TILE:
            choices.append(replace(choice, extent=prod(decisions[0])))
        elif choice.kind is ChoiceKind.LOCATION:
            locations = tuple(sorted({location for (location,) in decisions}))
            choices.append(replace(choice, values=locations, weights=()))
        else:
            choices.append(choice)
    return replace(sketch, choices=tuple(choices))


def collect_recorded_tasks(
    directories: Sequence[Path], candidates: int
) -> tuple[list[RecordedTask], list[dict[str, object]]]:
    """Return tasks with at least `candidates` results in these directories, and their hosts.

    Keeps the first task per workload, target and context. Raises NotFound if there is none.
    """
    tasks: dict[tuple[str, str, str], RecordedTask] = {}
    hosts: list[dict[str, object]] = []
    for directory in directories:
        file = directory / "mallorn.db"
        if not file.is_file():
            message = f"there is no dataset in {directory}"
            raise NotFound(message, hint=f"mallorn record MODEL.onnx --data {directory}")
        with Database(f"sqlite:///{file.absolute()}") as database:
            for task in recorded_tasks(database, candidates):
                tasks.setdefault((task.workload, task.target, str(task.context)), task)
            hosts += [host for host in measuring_hosts(database) if host not in hosts]
    if not tasks:
        raise NotFound(
            f"no task in {', '.join(map(str, directories))} has {candidates} measured candidates",
            hint="mallorn record MODEL.onnx   (or ask for fewer: --candidates 100)",
        )
    return list(tasks.values()), hosts


def recorded_tasks(database: Database, candidates: int) -> list[RecordedTask]:
    tasks: list[RecordedTask] = []
    with database.session() as session:
        for row in MeasuredTasks(session).list():
            first: dict[Candidate, Trial] = {}  # the first informative result of each candidate
            for trial in MeasuredTasks(session).trials(row):
                if trial.outcome not in UNINFORMATIVE:
                    first.setdefault(trial.candidate, trial)
            if len(first) >= candidates:
                tasks.append(_task(session, row, list(first.values())))
    return tasks


def measuring_hosts(database: Database) -> list[dict[str, object]]:
    """Return descriptions of the devices that measured, without names and addresses."""
    with database.session() as session:
        return [
            {
                "host_class": device.host_class,
                "threads": device.threads,
                "tvm_version": device.tvm_version,
                **device.info.model_dump(include=HOST_FACTS, exclude_defaults=True),
            }
            for device in MeasuredTasks(session).devices()
        ]


def _task(session: Session, row: MeasuredTask, trials: Sequence[Trial]) -> RecordedTask:
    workload = Workloads(session).get(row.workload_id)
    candidates: dict[str, list[Candidate]] = {}
    for trial in trials:
        candidates.setdefault(trial.candidate.sketch, []).append(trial.candidate)
    sketches = Sketches(session).by_key(candidates.keys()).values()
    return RecordedTask(
        workload=workload.key,
        name=workload.name,
        op=workload.op,
        structure=workload.structure,
        flops=workload.flops,
        args=workload.args,
        descriptors=descriptors_of(workload),
        target=Targets(session).get(row.target_id).text,
        context=Contexts(session).get(row.context_id).measured_on.model_dump(),
        sketches=tuple(fit_sketch_to_candidates(sketch, candidates[sketch.key]) for sketch in sketches),
        trials=tuple(trials),
    )
