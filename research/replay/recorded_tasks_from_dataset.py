"""Read recorded tasks from a dataset and fit their sketches to each workload.

A sketch's key is a hash of its trace, which does not contain loop extents: workloads that differ only
in sizes share a sketch row, with the extents and locations of the workload that was stored first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final

from sqlalchemy.orm import Session

from costmodels.labels import UNINFORMATIVE
from db.repositories.measuring_contexts import Contexts
from db.repositories.sketches import Sketches
from db.repositories.targets import Targets
from db.repositories.trials import MeasuredTask, Recordings
from db.repositories.workloads import Workloads
from db.session import Database
from mallorn.core.errors import NotFound
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from research.replay.recorded_task import RecordedTask
from searchers.space import Choice, ChoiceKind, Sketch
from workers.round.round_context import descriptors_of

# Fields of a device's description to record: no host names, no addresses.
HOST_FACTS: Final[set[str]] = {"cpu_model", "cores", "governor", "machine", "accelerator"}


def fitted(sketch: Sketch, candidates: Sequence[Candidate]) -> Sketch:
    """Return the sketch with the loop extents and locations that these candidates use."""
    parts = [[each.decisions[columns] for each in candidates] for columns, _ in sketch.places]
    choices = tuple(_fitted(choice, part) for choice, part in zip(sketch.choices, parts, strict=True))
    return replace(sketch, choices=choices)


def _fitted(choice: Choice, decisions: Sequence[tuple[int, ...]]) -> Choice:
    if choice.kind is ChoiceKind.TILE:
        return replace(choice, extent=prod(decisions[0]))
    if choice.kind is ChoiceKind.LOCATION:
        return replace(choice, values=tuple(sorted({value for (value,) in decisions})), weights=())
    return choice


def collect(
    directories: Sequence[Path], candidates: int
) -> tuple[list[RecordedTask], list[dict[str, object]]]:
    """Return the tasks in these data directories and the hosts that measured them.

    Keeps the first task per workload, target and context. Raises NotFound for no dataset or task.
    """
    tasks: dict[tuple[str, str, str], RecordedTask] = {}
    hosts: list[dict[str, object]] = []
    for database in _datasets(directories):
        for task in recorded_tasks(database, candidates):
            tasks.setdefault((task.workload, task.target, str(task.context)), task)
        hosts += [host for host in measuring_hosts(database) if host not in hosts]
    if not tasks:
        raise NotFound(
            f"no task in {', '.join(map(str, directories))} has {candidates} measured candidates",
            hint="mallorn record MODEL.onnx   (or be content with fewer: --candidates 100)",
        )
    return list(tasks.values()), hosts


def _datasets(directories: Sequence[Path]) -> Iterator[Database]:
    for directory in directories:
        file = directory / "mallorn.db"
        if not file.is_file():
            raise NotFound(
                f"there is no dataset in {directory}", hint=f"mallorn record MODEL.onnx --data {directory}"
            )
        with Database(f"sqlite:///{file.absolute()}") as database:
            yield database


def recorded_tasks(database: Database, candidates: int) -> list[RecordedTask]:
    """Return all tasks of the dataset with at least this many distinct candidates."""
    with database.session() as session:
        return list(_tasks(session, candidates))


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
            for device in Recordings(session).devices()
        ]


def _tasks(session: Session, candidates: int) -> Iterator[RecordedTask]:
    for measured in Recordings(session).measured():
        first: dict[Candidate, Trial] = {}  # the first informative result of each candidate
        for trial in Recordings(session).trials(measured):
            if trial.outcome not in UNINFORMATIVE:
                first.setdefault(trial.candidate, trial)
        trials = list(first.values())
        if len(trials) >= candidates:
            yield _task(session, measured, trials)


def _task(session: Session, measured: MeasuredTask, trials: Sequence[Trial]) -> RecordedTask:
    workload = Workloads(session).get(measured.workload_id)
    candidates: dict[str, list[Candidate]] = {}
    for trial in trials:
        candidates.setdefault(trial.candidate.sketch, []).append(trial.candidate)
    stored = Sketches(session).by_key(candidates.keys()).values()
    return RecordedTask(
        workload=workload.key,
        name=workload.name,
        op=workload.op,
        structure=workload.structure,
        flops=workload.flops,
        args=workload.args,
        descriptors=descriptors_of(workload),
        target=Targets(session).get(measured.target_id).text,
        context=Contexts(session).get(measured.context_id).measured_on.model_dump(),
        sketches=tuple(fitted(sketch, candidates[sketch.key]) for sketch in stored),
        trials=tuple(trials),
    )
