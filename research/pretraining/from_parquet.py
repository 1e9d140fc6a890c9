"""Read training data from Parquet files of `mallorn dataset export` or `mallorn record`."""

import hashlib
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import unpack_sketch
from mallorn.db.dataset.dataset_reader import open_export
from mallorn.db.dataset.export_schema import (
    CONTEXT,
    MEASUREMENT_TABLE,
    SKETCH_TABLE,
    WORKLOAD_TABLE,
    find_row_flaw,
)
from mallorn.db.dataset.take_snapshots import Progress, ignore_progress
from mallorn.db.measurement_codec import pack_decisions
from mallorn.research.pretraining.sample_rows_per_task import (
    MOST_ROWS,
    NOWHERE,
    TaskKey,
    TaskSample,
    WorkloadFacts,
)
from mallorn.research.pretraining.training_data import TaskData, TrainingData
from mallorn.research.replay.recording_file import read_tasks
from mallorn.workers.round.round_context import descriptors

SOME: Final = 100  # workloads or sketches in memory at a time


def read_training_data(
    path: Path, progress: Progress = ignore_progress, limit: int = MOST_ROWS
) -> TrainingData:
    """Return the measurements of a recording, or of an export or its measurement file.

    Raises NotFound if a file is missing, InvalidRequest if it cannot be read completely.
    """
    directory = path.parent if path.name == MEASUREMENT_TABLE.file else path
    if directory.is_dir():
        reader = open_export(directory)
        sample, skipped_rows = TaskSample(reader.rows, limit), Counter[str]()
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
            for batch in reader.batches(WORKLOAD_TABLE, SOME)
            for row in batch
        }
        sketches = {
            row["key"]: unpack_sketch(row | {"choices": json.loads(row["choices"])})
            for batch in reader.batches(SKETCH_TABLE, SOME)
            for row in batch
            if row["key"] in sample.sketches
        }
        tasks = sample.tasks(facts, sketches, hosts)
        return TrainingData(tasks, str(reader.snapshot["name"]), networks=networks, skipped=skipped_rows)
    if not path.exists():
        raise NotFound(f"there is no file {path}", hint="mallorn dataset export DIR")
    # Recordings are small: `limit` does not apply to them.
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
