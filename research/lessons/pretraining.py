"""Bases: models of an operator on a target. They propose for tasks of which nothing is known yet."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import numpy as np

from costmodels.base import CostModel
from costmodels.based import Based
from costmodels.domains import ManyDomains
from db.dataset.snapshots import Progress, silent
from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.targets import Targets
from db.session import Database
from mallorn.core.errors import InvalidRequest
from mallorn.core.names import resolve
from mallorn.core.stand_ins import stand_in
from mallorn.core.targets import Target, parse_target
from mallorn.core.versions import VersionName, base_family
from research.lessons.judging import figures, mean
from research.lessons.lesson import Lesson, Lessons
from research.lessons.rows import Rows, thinned
from research.lessons.views import Lowering, rows_for

BASE_ROWS: Final = 20_000  # a base learns from so many: a minute or so, once
FEWEST_ROWS: Final = 32  # valid ones, below which it would tell noise
WORTH_PAIRS: Final = 0.55  # of the pairs held out in the right order; 0.5 is chance
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
    active: bool = False  # whether it proposes from now on


def pretrain(
    database: Database,
    lessons: Lessons,
    model: str,
    progress: Progress = silent,
    lowering: Lowering | None = None,
    home: Target | None = None,
) -> Iterator[Base]:
    """Fit and store the next version of each operator's base; each is stored once it is fit.

    Each target has bases of its own; with a `home` there is one an operator, for that target from the rows of
    all. One that does no better than chance on rows held out is stored and not activated. Raises
    InvalidRequest for a model that stands on a base itself.
    """
    _check(model)
    places = sorted({(task.op, home.text if home else task.target) for task in lessons.tasks})
    for done, (op, target) in enumerate(places):
        progress(done, len(places))
        tasks = [task for task in lessons.tasks if task.op == op and _teaches(task, target, home)]
        count = sum(len(task.trials) for task in tasks)
        if (fit := _fit(model, tasks, target, lowering)) is None:
            yield Base(op, target, _workloads(tasks), count, None, {})
            continue
        name = _store(database, lessons, model, op, target, count, fit[1], fit[0].save())
        yield Base(op, target, _workloads(tasks), count, name, fit[1], is_worth_it(fit[1]))
    progress(len(places), len(places))


def is_worth_it(metrics: Mapping[str, Any]) -> bool:
    """Whether a base beats chance on the first of its splits: targets held out, else tasks, else rows."""
    return (metrics["pairwise"] or 0.0) >= WORTH_PAIRS


def _teaches(task: Lesson, target: str, home: Target | None) -> bool:
    """What was made up or replayed teaches its own target alone."""
    return task.target == target or (home is not None and not stand_in(Target(task.target)))


def _check(model: str) -> None:
    if issubclass(resolve("cost_model", model), Based):
        raise InvalidRequest(
            f"{model} stands on a base, and is none itself", hint="mallorn pretrain xgboost   (or another)"
        )


def _fit(
    model: str, tasks: Sequence[Lesson], target: str, lowering: Lowering | None
) -> tuple[CostModel, dict[str, Any]] | None:
    """A base and its figures; None where too few of the rows that the model can see are valid."""
    if _valid(tasks) < FEWEST_ROWS:
        return None
    make = resolve("cost_model", model)
    rows = rows_for(_bounded(tasks, target), make.view, lowering)
    if np.count_nonzero(np.isfinite(rows.latencies_us)) < FEWEST_ROWS:
        return None
    first, *others = _splits(rows)
    judged = {first: _judged(make, rows, first)}
    for split in others:
        with suppress(InvalidRequest):  # which leaves nothing to judge: targets may hold the same candidates
            judged[split] = _judged(make, rows, split)
    counts = {"tasks": _workloads(tasks), "targets": len(rows.target_names), "trained_on": len(rows)}
    return _taught(make(), rows, target), judged[first] | {"split": first, "splits": judged} | counts


def _bounded(tasks: Sequence[Lesson], target: str) -> Sequence[Lesson]:
    """Rows of other targets make room for the target's own, which may be few."""
    own = thinned([task for task in tasks if task.target == target], BASE_ROWS)
    others = [task for task in tasks if task.target != target]
    room = BASE_ROWS - sum(len(task.trials) for task in own)
    return [*own, *(thinned(others, room) if room else [])]


def _splits(rows: Rows) -> list[str]:
    """Those that the rows can be parted by. What a base is for comes first: targets, else tasks not seen."""
    possible = {"by-target": len(rows.target_names), "by-task": len(rows.workloads), "within-task": 2}
    return [split for split, parts in possible.items() if parts > 1]


def _judged(make: type[CostModel], rows: Rows, split: str) -> dict[str, float | None]:
    found = mean(figures(make, rows, split, seeds=1))
    return {name: None if isnan(found[name]) else round(found[name], 4) for name in TOLD}


def _taught(model: CostModel, rows: Rows, target: str) -> CostModel:
    if not isinstance(model, ManyDomains):
        model.fit(rows.features, rows.labels, rows.groups, seed=0)
        return model
    domains = [rows.target_names[at] for at in rows.targets]
    # Nothing was measured there yet: until it is, whoever has most rows answers.
    home = target if target in domains else max(rows.target_names, key=domains.count)
    model.fit_domains(rows.features, rows.labels, rows.groups, domains, home=home, seed=0)
    return model


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
            ),
            active=is_worth_it(metrics),
        )
        return VersionName(stored.family, stored.name, stored.version)


def _valid(tasks: Sequence[Lesson]) -> int:
    return sum(latency is not None for task in tasks for latency in task.latencies_us)


def _workloads(tasks: Sequence[Lesson]) -> int:
    return len({task.workload for task in tasks})
