"""Bases: models of an operator on a target, which propose for tasks that have no measurements yet."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isnan
from typing import Final

import numpy as np

from costmodels.base import CostModel
from costmodels.select_training_rows import chosen
from costmodels.transfer_model_base import ManyDomains, TransferModel
from db.dataset.snapshots import Progress, silent
from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.targets import Targets
from db.session import Database
from mallorn.core.cost_model_name import CostModelName, base_family
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.stand_in_measurers import stand_in
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.cost_model_version import CostModelMetrics
from research.pretraining.evaluate_splits import figures, mean
from research.pretraining.feature_rows import Lowering, rows_for
from research.pretraining.training_arrays import Rows, thinned
from research.pretraining.training_data import TaskData, TrainingData
from workers.round.select_cost_model import view_of

BASE_ROWS: Final = 20_000  # a base learns from so many: a minute or so, once
FEWEST_ROWS: Final = 32  # valid ones, below which it would tell noise
WORTH_PAIRS: Final = 0.55  # of the pairs held out in the right order; 0.5 is chance
TOLD: Final = ("pairwise", "spearman", "peak_1", "peak_5", "rmse")


@dataclass(frozen=True, slots=True)
class PretrainedBase:
    """The base of an operator on a target, or why there is none."""

    op: str
    target: str
    tasks: int
    rows: int
    name: CostModelName | None  # None: too few rows, nothing was stored
    metrics: CostModelMetrics
    active: bool = False  # whether it proposes from now on


def pretrain(
    database: Database,
    training_data: TrainingData,
    model: str,
    progress: Progress = silent,
    lowering: Lowering | None = None,
    home: Target | None = None,
    share: float | None = None,
) -> Iterator[PretrainedBase]:
    """Fit and store the next version of each operator's base, one after the other.

    Each target has its own bases. With a `home`, each operator has one base for that target, from the rows of
    all targets. With a `share`, it learns from that part of its rows, chosen actively (TCL), and is judged
    so. A base that does no better than chance on held-out rows is stored but not activated. Raises
    InvalidRequest for a model that stands on a base itself.
    """
    if issubclass(resolve("cost_model", model), TransferModel):
        raise InvalidRequest(
            f"{model} stands on a base, and is none itself", hint="mallorn pretrain xgboost   (or another)"
        )
    places = sorted({(task.op, home.text if home else task.target) for task in training_data.tasks})
    for done, (op, target) in enumerate(places):
        progress(done, len(places))
        # Simulated and replayed rows are for their own target only.
        tasks = [
            task
            for task in training_data.tasks
            if task.op == op and (task.target == target or (home and not stand_in(Target(task.target))))
        ]
        count = sum(len(task.trials) for task in tasks)
        if (fit := _fit(model, tasks, target, lowering, share)) is None:
            yield PretrainedBase(op, target, _workloads(tasks), count, None, CostModelMetrics())
            continue
        name = _store(database, training_data, model, op, target, count, fit[1], fit[0].save())
        yield PretrainedBase(op, target, _workloads(tasks), count, name, fit[1], is_worth_it(fit[1]))
    progress(len(places), len(places))


def is_worth_it(metrics: CostModelMetrics) -> bool:
    """True if a base beats chance on the first of its splits: held-out targets, else tasks, else rows.

    What learned from other tuners' candidates alone was not judged by any of ours.
    """
    return (metrics.pairwise or 0.0) >= WORTH_PAIRS and not only_foreign(metrics)


def only_foreign(metrics: CostModelMetrics) -> bool:
    """Whether all rows of a base are other tuners'."""
    return metrics.foreign is not None and metrics.foreign == metrics.trained_on


def _fit(
    model: str, tasks: Sequence[TaskData], target: str, lowering: Lowering | None, share: float | None
) -> tuple[CostModel, CostModelMetrics] | None:
    """A base and its figures; None where too few of the rows that the model can see are valid."""
    if sum(latency is not None for task in tasks for latency in task.latencies_us) < FEWEST_ROWS:
        return None
    make = resolve("cost_model", model)
    bounded = _bounded(tasks, target)
    rows = rows_for(bounded, make.view, lowering)
    if np.count_nonzero(np.isfinite(rows.latencies_us)) < FEWEST_ROWS:
        return None
    known = len(rows)
    if share is not None:
        count, rng = max(FEWEST_ROWS, round(share * len(rows))), np.random.default_rng(0)
        rows = rows.take(chosen(rows.features, rows.labels, rows.groups, count, rng))
    # What a base is for comes first: targets, else tasks not seen.
    parts = {"by-target": len(rows.target_names), "by-task": len(rows.workloads), "within-task": 2}
    first, *others = [split for split, count in parts.items() if count > 1]
    judged = {first: _judged(make, rows, first)}
    for split in others:
        with suppress(InvalidRequest):  # which leaves nothing to judge: targets may hold the same candidates
            judged[split] = _judged(make, rows, split)
    counts: dict[str, int | None] = {"chosen_from": known} if share is not None else {}
    counts |= {"tasks": _workloads(tasks), "targets": len(rows.target_names), "trained_on": len(rows)}
    if foreign := sum(len(task.trials) for task in bounded if task.foreign):
        counts["foreign"] = foreign
    metrics = {**judged[first], "split": first, "splits": judged, **counts}
    return _taught(make(), rows, target), CostModelMetrics.model_validate(metrics)


def _bounded(tasks: Sequence[TaskData], target: str) -> Sequence[TaskData]:
    """Rows of other targets make room for the target's own, which may be few."""
    own = thinned([task for task in tasks if task.target == target], BASE_ROWS)
    others = [task for task in tasks if task.target != target]
    room = BASE_ROWS - sum(len(task.trials) for task in own)
    return [*own, *(thinned(others, room) if room else [])]


def _judged(make: type[CostModel], rows: Rows, split: str) -> dict[str, float | None]:
    found = mean(figures(make, rows, split, seeds=1))
    return {name: None if isnan(found[name]) else round(found[name], 4) for name in TOLD}


def _taught(model: CostModel, rows: Rows, target: str) -> CostModel:
    if not isinstance(model, ManyDomains):
        model.fit(rows.features, rows.labels, rows.groups, seed=0)
        return model
    domains = [rows.target_names[at] for at in rows.targets]
    # Without rows of the target, the target with most rows answers.
    home = target if target in domains else max(rows.target_names, key=domains.count)
    model.fit_domains(rows.features, rows.labels, rows.groups, domains, home=home, seed=0)
    return model


def _store(
    database: Database,
    training_data: TrainingData,
    model: str,
    op: str,
    target: str,
    rows: int,
    metrics: CostModelMetrics,
    blob: bytes,
) -> CostModelName:
    with database.transaction() as session:
        target_id = Targets(session).ensure(parse_target(target)).id
        head = CostModels(session).head(base_family(op), target_id, model)
        stored = CostModels(session).add(
            NewCostModel(
                family=base_family(op),
                target_id=target_id,
                name=model,
                seen_upto=training_data.upto,
                rows=rows,
                metrics=metrics.model_dump(exclude_unset=True) | {"view": view_of(model)},
                blob=blob,
                parent_id=head.id if head else None,
                snapshot=training_data.snapshot,
            ),
            active=is_worth_it(metrics),
        )
        return CostModelName(stored.family, stored.name, stored.version)


def _workloads(tasks: Sequence[TaskData]) -> int:
    return len({task.workload for task in tasks})
