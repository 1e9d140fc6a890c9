"""Turn files of trials into a recording that searches replay, and into rows of a dataset.

    python -m benchmarks.gpu record FILE ... --out benchmarks/data/recordings/h200.parquet [--data DIR]

A file is what part 3 wrote, or docs/results/gpu/h200_trials.jsonl.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import tvm

from benchmarks.gpu.programs import module_of
from benchmarks.gpu.tasks import BY_NAME
from benchmarks.gpu.trials import MeasuredCandidate, read_device, read_trials
from mallorn.core.values.manifest import MeasuredOn
from mallorn.core.version import VERSION
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.db.session import Database
from mallorn.searchers.base import Trial
from mallorn.searchers.space import Candidate
from mallorn.workers.interfaces.model_compiler import ModelTask, Restored, RestoredLog
from mallorn.workers.interfaces.tensor_arguments import pack_arguments
from mallorn.workers.round.loaded_round import descriptors
from mallorn.workers.shared_schedules.import_records import Provenance, store_records
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.programs.workload_key import rename_blocks_canonically
from mallorn_research.replay.recording_file import RecordedTask, write_tasks

Group = tuple[str, str]  # name of a task, and the device's host class


def model_task(name: str) -> ModelTask:
    """Return the product's description of a task, with canonical names of blocks."""
    return describe_task(rename_blocks_canonically(module_of(BY_NAME[name])), name, 1)


def record(files: Sequence[Path], out: Path | None, data: Path | None) -> str:
    """Write trials to a recording and to a dataset; return how many tasks and trials."""
    devices = {file: read_device(file) for file in files}
    trials = {file: list(read_trials([file])) for file in files}
    tasks = {name: model_task(name) for each in trials.values() for name in {one.task for one in each}}
    if out is not None:
        hosts = [
            dict(text)
            for text in dict.fromkeys(tuple(sorted(d.items())) for d in map(_flat, devices.values()))
        ]
        write_tasks(
            out,
            recorded_tasks(devices, trials, tasks),
            {"hosts": hosts, "mallorn": VERSION, "written_at": int(time.time())},
        )
    if data is not None:
        for file, measured in trials.items():
            _store(data, tasks, measured, _measured_on(devices[file]))
    count = sum(map(len, trials.values()))
    return f"{count} trials of {len(tasks)} tasks"


def recorded_tasks(
    devices: Mapping[Path, dict[str, Any]],
    trials: Mapping[Path, Sequence[MeasuredCandidate]],
    tasks: Mapping[str, ModelTask],
) -> list[RecordedTask]:
    """Return a recorded task per task and device, with the first result of each candidate."""
    groups: dict[Group, list[MeasuredCandidate]] = {}
    contexts: dict[Group, dict[str, Any]] = {}
    for file, measured in trials.items():
        context = _measured_on(devices[file]).model_dump()
        for each in measured:
            if each.trial.outcome not in UNINFORMATIVE:
                group = each.task, str(context["host_class"])
                groups.setdefault(group, []).append(each)
                contexts[group] = context
    return [_recorded(tasks[group[0]], found, contexts[group]) for group, found in groups.items()]


def _recorded(
    task: ModelTask, measured: Sequence[MeasuredCandidate], context: dict[str, Any]
) -> RecordedTask:
    first: dict[Candidate, Trial] = {}
    for each in measured:
        first.setdefault(
            each.trial.candidate, replace(each.trial, origin=f"{each.method}:{each.trial.origin}")
        )
    return RecordedTask(
        workload=task.key,
        name=task.name,
        op=task.op,
        structure=task.structure,
        flops=task.flops,
        args=pack_arguments(task.args),
        descriptors=descriptors(task.flops, task.extents),
        target=measured[0].target,
        context=context,
        sketches=tuple({each.sketch.key: each.sketch for each in measured}.values()),
        trials=tuple(first.values()),
    )


def _store(
    data: Path, tasks: Mapping[str, ModelTask], measured: Sequence[MeasuredCandidate], on: MeasuredOn
) -> None:
    records = [
        Restored(
            tasks[each.task],
            each.sketch,
            each.trial.candidate.decisions,
            [us / 1e6 for us in each.trial.run_us],
            each.target,
            line,
        )
        for line, each in enumerate(measured, 1)
        if each.trial.outcome not in UNINFORMATIVE
    ]
    origin = Provenance(uuid5(NAMESPACE_URL, "benchmarks.gpu").hex, "gpu-minutes", time.time(), on)
    with (
        Database(f"sqlite:///{(data / 'mallorn.db').absolute()}") as database,
        database.transaction() as session,
    ):
        names = {task.key: name for name, task in tasks.items()}
        store_records(
            session, RestoredLog(records, [], tvm.__version__, len(records)), lambda _: origin, names
        )


def _measured_on(device: Mapping[str, Any]) -> MeasuredOn:
    return MeasuredOn.model_validate(
        {name: value for name, value in device.items() if name in MeasuredOn.model_fields}
    )


def _flat(device: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in device.items() if isinstance(value, str | int | float)}
