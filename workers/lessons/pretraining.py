"""Bases: models of an operator on a target. They propose for families that have no model of their own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

from costmodels.base import CostModel
from db.dataset.snapshots import Progress, silent
from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.targets import Targets
from db.session import Database
from mallorn.core.names import resolve
from mallorn.core.targets import parse_target
from mallorn.core.versions import VersionName, base_family
from workers.lessons.judging import figures, mean
from workers.lessons.lesson import Lesson, Lessons
from workers.lessons.rows import thinned
from workers.lessons.views import Lowering, rows_for

BASE_ROWS: Final = 20_000  # a base learns from so many: a minute or so, once
FEWEST_ROWS: Final = 32  # valid ones, below which it would tell noise
TOLD: Final = ("pairwise", "spearman", "peak_1", "peak_5", "rmse")


@dataclass(frozen=True, slots=True)
class Base:
    """What became of an operator on a target."""

    op: str
    target: str
    tasks: int
    rows: int
    name: VersionName | None  # None: too few rows, nothing was stored
    metrics: dict[str, Any]


def pretrain(
    database: Database,
    lessons: Lessons,
    model: str,
    progress: Progress = silent,
    lowering: Lowering | None = None,
) -> Iterator[Base]:
    """Fit and store the next version of each operator's base; each is stored once it is fit."""
    places = sorted({(task.op, task.target) for task in lessons.tasks})
    for done, (op, target) in enumerate(places):
        progress(done, len(places))
        tasks = [task for task in lessons.tasks if (task.op, task.target) == (op, target)]
        count = sum(len(task.candidates) for task in tasks)
        if _valid(tasks) < FEWEST_ROWS:
            yield Base(op, target, _workloads(tasks), count, None, {})
            continue
        fit, metrics = _fit(model, tasks, lowering)
        name = _store(database, lessons, model, op, target, count, metrics, fit.save())
        yield Base(op, target, _workloads(tasks), count, name, metrics)
    progress(len(places), len(places))


def _fit(model: str, tasks: Sequence[Lesson], lowering: Lowering | None) -> tuple[CostModel, dict[str, Any]]:
    make = resolve("cost_model", model)
    rows = rows_for(thinned(tasks, BASE_ROWS), make.view, lowering)
    split = "by-task" if len(set(rows.tasks)) > 1 else "within-task"
    found = mean(figures(make, rows, split, seeds=1))
    fit: CostModel = make()
    fit.fit(rows.features, rows.labels, rows.groups, seed=0)
    told = {name: None if isnan(found[name]) else round(found[name], 4) for name in TOLD}
    return fit, told | {"split": split, "tasks": _workloads(tasks), "trained_on": len(rows)}


def _store(
    database: Database,
    lessons: Lessons,
    model: str,
    op: str,
    target: str,
    rows: int,
    metrics: dict[str, Any],
    blob: bytes,
) -> VersionName:
    with database.transaction() as session:
        target_id = Targets(session).ensure(parse_target(target)).id
        head = CostModels(session).head(base_family(op), target_id, model)
        stored = CostModels(session).add(
            NewCostModel(
                family=base_family(op),
                target_id=target_id,
                name=model,
                seen_upto=lessons.upto,
                rows=rows,
                metrics=metrics,
                blob=blob,
                parent_id=head.id if head else None,
                snapshot=lessons.snapshot,
            )
        )
        return VersionName(stored.family, stored.name, stored.version)


def _valid(tasks: Sequence[Lesson]) -> int:
    return sum(latency is not None for task in tasks for latency in task.latencies_us)


def _workloads(tasks: Sequence[Lesson]) -> int:
    return len({task.workload for task in tasks})
