"""Training data from other tuners' records: candidates of programs that nobody here has.

Steps tell a candidate in the view `primitives`, and how the loops of the largest stage are cut tells of most
programs which operator they are. What a record does not tell is left out.
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

from costmodels.labels import UNINFORMATIVE
from costmodels.views import PRIMITIVES
from db.repositories.tuner_log_records import ForeignRecords, ForeignTrial
from db.session import Database
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from research.pretraining.sample_rows_per_task import MOST_ROWS
from research.pretraining.training_data import TaskData, TrainingData
from research.tuner_logs.auto_scheduler_steps import ReadSteps, read_steps
from research.tuner_logs.tenset import FORMAT
from workers.round.round_context import descriptors

DEEP: Final = 4  # levels of a loop whose values are used again: both of its policies tile those alone
# By how many of a stage's loops have all levels, and how many have fewer, as sums have.
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
DIGITS: Final = 12  # of the digest, in the name


def with_foreign(
    database: Database, data: TrainingData, model: str, op: str | None = None, limit: int = MOST_ROWS
) -> TrainingData:
    """The same and what other tuners' records tell. Raises InvalidRequest for a model of another view."""
    view = resolve("cost_model", model).view
    if view != PRIMITIVES.name:
        raise InvalidRequest(
            f"{model} reads the view {view}, and records of other tuners tell {PRIMITIVES.name} alone",
            hint="mallorn pretrain tlp --foreign --for TARGET",
        )
    skipped = Counter(data.skipped)
    with database.session() as session:
        by_task = groupby(ForeignRecords(session).sample(FORMAT, limit), attrgetter("task_key"))
        found = [_task(list(records), skipped) for _, records in by_task]
    tasks = [task for task in found if task is not None and op in (None, task.op)]
    name = f"{data.snapshot}+{FORMAT}-{_digest(tasks)}"
    return replace(data, tasks=[*data.tasks, *tasks], snapshot=name, skipped=+skipped)


def _digest(tasks: Sequence[TaskData]) -> str:
    """Of all rows, the same in every database that holds them."""
    words = sorted(
        f"{task.workload} {trial.candidate.key} {trial.latency_us}" for task in tasks for trial in task.trials
    )
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:DIGITS]


def _task(records: Sequence[ForeignTrial], skipped: Counter[str]) -> TaskData | None:
    informative = [record for record in records if record.outcome not in UNINFORMATIVE]
    read = [(record, schedule) for record in informative if (schedule := _read(record, skipped)) is not None]
    known = next(filter(None, (_loops(schedule) for _, schedule in read)), None)
    if known is None:
        skipped[UNKNOWN] += len(read)
        return None
    op, extents = known
    words = records[0].target
    # As JSON a log's target has a name among targets: it says no cores, and no job has it.
    target = json.dumps({"kind": words.partition(" ")[0], "words": words})
    return TaskData(
        *(records[0].task, op, target, FORMAT),
        descriptors=descriptors(2.0 * prod(extents), extents),
        sketches={schedule.sketch.key: schedule.sketch for _, schedule in read},
        trials=[
            Trial(Candidate(schedule.sketch.key, schedule.decisions), record.outcome, record.latency_us)
            for record, schedule in read
        ],
        foreign=True,
    )


def _read(record: ForeignTrial, skipped: Counter[str]) -> ReadSteps | None:
    try:
        return read_steps(record.steps)
    except ValueError:
        skipped[UNREADABLE] += 1
        return None


def _loops(schedule: ReadSteps) -> tuple[str, Sequence[int]] | None:
    """Which operator it is, and the extents of its loops, those of sums last; None: it tiles no sum."""
    stages = defaultdict[str, list[tuple[int, int]]](list)
    for tile in schedule.tiles:
        stages[tile.block].append((tile.levels, tile.extent))
    loops = max(stages.values(), key=len, default=[])
    deepest = max((levels for levels, _ in loops), default=0)
    results = [extent for levels, extent in loops if levels == deepest]
    sums = [extent for levels, extent in loops if levels < deepest]
    op = OPERATORS.get((len(results), len(sums)))
    extents = [*results, *sums]
    return None if op is None or deepest < DEEP or 0 in extents else (op, extents)
