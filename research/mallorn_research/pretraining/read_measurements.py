"""Read training data, as tasks, from a database or from Parquet files; sample large sets."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import Candidate, Sketch, unpack_sketch
from mallorn.core.values.trial import Trial
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.db.dataset.export_files import (
    CONTEXT,
    MEASUREMENT_TABLE,
    SKETCH_TABLE,
    WORKLOAD_TABLE,
    find_row_flaw,
    open_export,
)
from mallorn.db.dataset.snapshots import Progress, SnapshotReader, ignore_progress, take_snapshot
from mallorn.db.measurement_codec import pack_decisions, unpack_decisions
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.snapshots import Selection, Snapshots
from mallorn.db.repositories.workloads import Networks, Sketches, Workloads
from mallorn.db.session import Database
from mallorn.workers.round.loaded_round import descriptors, descriptors_of
from mallorn_research.pretraining.training_data import TaskData, TrainingData
from mallorn_research.replay.recording_file import read_tasks

MOST_ROWS: Final = 100_000  # rows kept of a larger set: features take some hundred MB
SCATTER: Final = 2654435761  # Knuth's hash multiplier, which spreads consecutive row numbers
SPAN: Final = 1 << 32
NOWHERE: Final = ""  # the context of rows that never reached a device
Numbered = tuple[int, Trial]  # a trial with its number among all rows of the stream
IDS_PER_QUERY: Final = 500  # workloads, with their programs, in memory at a time
TEXTS_AT_A_TIME: Final = 100  # workloads or sketches in memory at a time


class TaskKey(NamedTuple):
    """Identifies a task: workload, target and measuring context (such as the host class)."""

    workload: str
    target: str
    context: str


@dataclass(frozen=True, slots=True)
class WorkloadFacts:
    """A workload's operator, descriptors (numbers for cost models) and id."""

    op: str
    descriptors: tuple[float, ...]
    workload_id: int | None = None  # None for data from files


@dataclass(slots=True)
class TaskSample:
    """Collects all rows of a small stream; of a large one a sample and tasks' new bests."""

    total: int  # rows that will be added
    limit: int = MOST_ROWS
    rows: dict[TaskKey, list[Numbered]] = field(default_factory=lambda: defaultdict(list))
    _best_us: dict[TaskKey, float] = field(default_factory=lambda: defaultdict(lambda: inf))
    _number: int = 0

    def add(
        self, key: TaskKey, sketch: str, decisions: bytes, outcome: Outcome, latency_us: float | None
    ) -> None:
        """Keep a task's new best and a fixed sample by row number; drop other rows."""
        self._number += 1
        if outcome in UNINFORMATIVE:
            return
        # Labels are relative to the best row of a task, so a sample must contain it.
        is_best = latency_us is not None and latency_us < self._best_us[key]
        if is_best and latency_us is not None:
            self._best_us[key] = latency_us
        if is_best or self._number * SCATTER % SPAN < SPAN * self.limit / max(self.total, 1):
            candidate = Candidate(sketch, unpack_decisions(decisions))
            self.rows[key].append((self._number, Trial(candidate, outcome, latency_us)))

    @property
    def sketches(self) -> set[str]:
        return {trial.candidate.sketch for rows in self.rows.values() for _, trial in rows}

    @property
    def workloads(self) -> set[str]:
        return {key.workload for key in self.rows}

    @property
    def contexts(self) -> set[str]:
        return {key.context for key in self.rows} - {NOWHERE}

    def tasks(
        self,
        facts: Mapping[str, WorkloadFacts],
        sketches: Mapping[str, Sketch],
        hosts: Mapping[str, str],  # the host class of each context
    ) -> list[TaskData]:
        """Return a task per workload, target and context, in the order of their first rows."""
        # Rows without a device get the context in which their workload has most rows.
        keys = [key for key in self.rows if key.context != NOWHERE]
        homes = {
            key._replace(context=NOWHERE): key for key in sorted(keys, key=lambda key: len(self.rows[key]))
        }
        rows_by_task = defaultdict[TaskKey, list[Numbered]](list)
        for key, rows in self.rows.items():
            rows_by_task[homes.get(key, key)] += rows

        tasks: list[TaskData] = []
        for key, rows in rows_by_task.items():
            trials = [trial for _, trial in sorted(rows, key=itemgetter(0))]
            workload_facts = facts[key.workload]
            tasks.append(
                TaskData(
                    workload=key.workload,
                    op=workload_facts.op,
                    target=key.target,
                    context=key.context,
                    descriptors=workload_facts.descriptors,
                    sketches={name: sketches[name] for name in {trial.candidate.sketch for trial in trials}},
                    trials=trials,
                    workload_id=workload_facts.workload_id,
                    host=hosts.get(key.context, ""),
                )
            )
        return tasks


def read_measurements(
    database: Database,
    snapshot: str | None,
    selection: Selection,
    progress: Progress = ignore_progress,
    limit: int = MOST_ROWS,
) -> TrainingData:
    """Return the measurements of the named snapshot or, if None, a new one of `selection`.

    Returns about `limit` rows. Raises NotFound for an unknown snapshot, target or operator.
    """
    if snapshot is None:
        frozen = take_snapshot(database, None, selection, progress)
    else:
        with database.session() as session:
            frozen = Snapshots(session).get(snapshot)
    sample, ids = TaskSample(frozen.rows, limit), dict[str, int]()
    for page in SnapshotReader.of(database, frozen).pages(database, progress):
        task_rows = page.rows("workload_id", "workload", "target", "context_id", "kind")
        trial_rows = page.rows("sketch", "decisions", "outcome", "latency_us", "bound_us")
        for task, trial in zip(task_rows, trial_rows, strict=True):
            workload_id, workload, target, context_id, kind = task
            sketch, decisions, outcome, latency_us, bound_us = trial
            # Trials with only an upper bound are left out.
            if MeasurementKind(kind).kind_before_import is MeasurementKind.TRIAL and bound_us is None:
                ids[workload] = workload_id
                task_key = TaskKey(workload, target, NOWHERE if context_id is None else str(context_id))
                sample.add(task_key, sketch, decisions, Outcome(outcome), latency_us)
    with database.session() as session:
        workload_ids = [ids[key] for key in sample.workloads]
        facts = {
            row.key: WorkloadFacts(row.op, descriptors_of(row), row.id)
            for start in range(0, len(workload_ids), IDS_PER_QUERY)
            for row in Workloads(session).get_many(workload_ids[start : start + IDS_PER_QUERY])
        }
        sketches = Sketches(session).by_key(sample.sketches)
        contexts = Contexts(session)
        hosts = {context: contexts.get(int(context)).host_class for context in sample.contexts}
        tasks = sample.tasks(facts, sketches, hosts)
        return TrainingData(tasks, frozen.name, frozen.upto, Networks(session).call_counts_by_network())


def read_training_data(path: Path, progress: Progress = ignore_progress) -> TrainingData:
    """Return the measurements of a recording, or of an export or its measurement file.

    Raises NotFound if a file is missing, InvalidRequest if it cannot be read completely.
    """
    directory = path.parent if path.name == MEASUREMENT_TABLE.file else path
    if directory.is_dir():
        reader = open_export(directory)
        sample, skipped_rows = TaskSample(reader.rows), Counter[str]()
        networks = defaultdict[str, dict[str, int]](dict)
        rows_read = 0
        for batch in reader.batches(MEASUREMENT_TABLE):
            for row in batch:
                if (problem := find_row_flaw(row, reader.widths)) is not None:
                    skipped_rows[problem] += 1
                elif MeasurementKind(row["kind"]) is MeasurementKind.TRIAL:
                    has_context = row["host_class"] is not None
                    context = json.dumps([row[name] for name in CONTEXT]) if has_context else NOWHERE
                    key = TaskKey(row["workload"], row["target"], context)
                    decisions = pack_decisions(row["decisions"])
                    sample.add(key, row["sketch"], decisions, Outcome(row["outcome"]), row["latency_us"])
                    if row["model"] is not None:
                        networks[row["model"]][row["workload"]] = 1  # exports do not hold the number of calls
            rows_read += len(batch)
            progress(rows_read, reader.rows)
        hosts = {context: str(json.loads(context)[0]) for context in sample.contexts}
        facts = {
            row["key"]: WorkloadFacts(
                row["op"], descriptors(row["flops"], json.loads(row["features"])["extents"])
            )
            for batch in reader.batches(WORKLOAD_TABLE, TEXTS_AT_A_TIME)
            for row in batch
        }
        sketches = {
            row["key"]: unpack_sketch(row | {"choices": json.loads(row["choices"])})
            for batch in reader.batches(SKETCH_TABLE, TEXTS_AT_A_TIME)
            for row in batch
            if row["key"] in sample.sketches
        }
        tasks = sample.tasks(facts, sketches, hosts)
        return TrainingData(tasks, str(reader.snapshot["name"]), networks=networks, skipped=skipped_rows)
    if not path.exists():
        raise NotFound(f"there is no file {path}", hint="mallorn dataset export DIR")
    # Recordings are small: MOST_ROWS does not apply to them.
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tasks = [
        TaskData(
            workload=task.workload,
            op=task.op,
            target=task.target,
            context=json.dumps(task.context, sort_keys=True),
            descriptors=task.descriptors,
            sketches={sketch.key: sketch for sketch in task.sketches},
            trials=task.trials,
            host=str(task.context.get("host_class", "")),
        )
        for task in read_tasks(path)
    ]
    return TrainingData(tasks, f"file-{digest[:12]}")
