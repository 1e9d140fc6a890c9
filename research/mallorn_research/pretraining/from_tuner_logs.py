"""Convert imported auto_scheduler records, which contain no program, to training data.

The features `primitives` need only a record's schedule steps. The operator is inferred from
how the loops of the largest stage are tiled. Records without steps or operator are skipped.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from math import prod
from operator import attrgetter
from typing import Final

from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.costmodels.views import PRIMITIVES
from mallorn.db.session import Database
from mallorn.workers.round.loaded_round import descriptors
from mallorn_research.pretraining.read_measurements import MOST_ROWS
from mallorn_research.pretraining.training_data import TaskData, TrainingData
from mallorn_research.tuner_logs.auto_scheduler import FORMAT, ReadSteps, read_steps
from mallorn_research.tuner_logs.foreign_records import ForeignRecords, ForeignTrial

DEEP: Final = 4  # tile levels of loops with data reuse; auto_scheduler tiles no other loops
# Keyed by the numbers of a stage's loops with all tile levels and of its reduction loops.
OPERATORS: Final = {
    (2, 1): "matmul",
    (3, 1): "batch_matmul",
    (3, 2): "conv1d",
    (4, 2): "depthwise_conv2d",
    (4, 3): "conv2d",
    (5, 4): "conv3d",
}
UNKNOWN: Final = "of other tuners, of no known operator"
UNREADABLE: Final = "of other tuners, with unknown steps"
DIGITS: Final = 12  # hexadecimal digits of the digest in a snapshot's name


def add_tuner_log_records(
    database: Database, data: TrainingData, model: str, op: str | None = None, limit: int = MOST_ROWS
) -> TrainingData:
    """Add records of other tuners. Raises InvalidRequest if the model cannot use them."""
    view = resolve("cost_model", model).view
    if view != PRIMITIVES.name:
        raise InvalidRequest(
            f"{model} reads {view}; records of other tuners have only {PRIMITIVES.name}",
            hint="mallorn costmodels pretrain tlp --foreign --for TARGET",
        )
    skipped_rows = Counter(data.skipped)
    with database.session() as session:
        by_task = groupby(ForeignRecords(session).sample(FORMAT, limit), attrgetter("task_key"))
        all_tasks = [_task(list(records), skipped_rows) for _, records in by_task]
    tasks = [task for task in all_tasks if task is not None and op in (None, task.op)]

    # The digest of the rows is the same in every database that holds them.
    rows = sorted(
        f"{task.workload} {trial.candidate.key} {trial.latency_us}" for task in tasks for trial in task.trials
    )
    digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()[:DIGITS]
    name = f"{data.snapshot}+{FORMAT}-{digest}"
    return replace(data, tasks=[*data.tasks, *tasks], snapshot=name, skipped=+skipped_rows)


def _task(records: Sequence[ForeignTrial], skipped_rows: Counter[str]) -> TaskData | None:
    pairs: list[tuple[ForeignTrial, ReadSteps]] = []
    for record in records:
        if record.outcome in UNINFORMATIVE:
            continue
        try:
            pairs.append((record, read_steps(record.steps)))
        except ValueError:
            skipped_rows[UNREADABLE] += 1
    loops = next(filter(None, (_operator_of(schedule) for _, schedule in pairs)), None)
    if loops is None:
        skipped_rows[UNKNOWN] += len(pairs)
        return None
    op, extents = loops
    log_target = records[0].target
    # JSON gives the log's target a valid name; no job's target equals it, as it has no cores.
    target = json.dumps({"kind": log_target.partition(" ")[0], "words": log_target})
    return TaskData(
        workload=records[0].task,
        op=op,
        target=target,
        context=FORMAT,
        descriptors=descriptors(2.0 * prod(extents), extents),
        sketches={schedule.sketch.key: schedule.sketch for _, schedule in pairs},
        trials=[
            Trial(Candidate(schedule.sketch.key, schedule.decisions), record.outcome, record.latency_us)
            for record, schedule in pairs
        ],
        foreign=True,
    )


def _operator_of(schedule: ReadSteps) -> tuple[str, Sequence[int]] | None:
    """Infer operator and loop extents (reductions last) from the tiles; None if unknown."""
    stages = defaultdict[str, list[tuple[int, int]]](list)
    for tile in schedule.tiles:
        stages[tile.block].append((tile.levels, tile.extent))
    loops = max(stages.values(), key=len, default=[])
    deepest = max((levels for levels, _ in loops), default=0)
    spatial = [extent for levels, extent in loops if levels == deepest]
    reductions = [extent for levels, extent in loops if levels < deepest]
    op = OPERATORS.get((len(spatial), len(reductions)))
    extents = [*spatial, *reductions]
    return None if op is None or deepest < DEEP or 0 in extents else (op, extents)
