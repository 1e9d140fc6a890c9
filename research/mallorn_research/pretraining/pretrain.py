"""Pretrain a cost model per operator and target; of many rows, TCL selects some."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from math import isnan
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from mallorn.core.cost_model_name import CostModelName, base_family
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import resolve
from mallorn.core.targets import Target, parse_target
from mallorn.core.values.cost_model_version import CostModelMetrics
from mallorn.costmodels.base import CostModel, Groups, Indices, Matrix, Vector
from mallorn.costmodels.ensemble_spread import bootstrap_counts, replace_nonfinite, weight_fast_rows
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.xgboost_models import make_quantile_matrix, member_scores, train_booster
from mallorn.db.dataset.snapshots import Progress, ignore_progress
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database
from mallorn.workers.round.select_cost_model import current_feature_view
from mallorn_research.costmodels.transfer_model_base import ManyDomains, TransferModel
from mallorn_research.pretraining.evaluate_splits import average_scores, compute_test_scores
from mallorn_research.pretraining.training_data import (
    Lowering,
    Rows,
    TaskData,
    TrainingData,
    rows_for,
    thin_tasks,
)

BASE_ROWS: Final = 20_000  # rows that a base learns from at most: about a minute of training
FEWEST_ROWS: Final = 32  # valid rows; a model of fewer would learn noise
WORTH_PAIRS: Final = 0.55  # share of held-out pairs ranked correctly; 0.5 is chance
TOLD: Final = ("pairwise", "spearman", "peak_1", "peak_5", "rmse")


@dataclass(frozen=True, slots=True)
class PretrainedBase:
    """The model pretrained for an operator and target; `name` is None if it was skipped."""

    op: str
    target: str
    tasks: int
    rows: int
    name: CostModelName | None  # None if too few valid rows: nothing was stored
    metrics: CostModelMetrics
    active: bool = False  # whether jobs use it from now on


def pretrain(
    database: Database,
    training_data: TrainingData,
    model: str,
    progress: Progress = ignore_progress,
    lowering: Lowering | None = None,
    home: Target | None = None,
    share: float | None = None,
) -> Iterator[PretrainedBase]:
    """Train, evaluate and store a base model per operator and target; yield each result.

    With `home` there is one model per operator, for that target, from the rows of all real
    targets. `share` limits training and evaluation to that share of the rows, chosen by
    active learning (TCL). A model hardly better than chance is stored but not activated.
    Raises InvalidRequest if `model` is a transfer model, which itself starts from a base.
    """
    if issubclass(resolve("cost_model", model), TransferModel):
        message = f"{model} extends a pretrained base model, and cannot be one itself"
        raise InvalidRequest(message, hint="mallorn costmodels pretrain xgboost   (or another)")
    bases = sorted({(task.op, home.text if home else task.target) for task in training_data.tasks})
    for number, (op, target) in enumerate(bases):
        progress(number, len(bases))
        # Rows of a simulated or replayed target only train that target's base.
        tasks = [
            task
            for task in training_data.tasks
            if task.op == op and (task.target == target or (home and not Target(task.target).virtual_device))
        ]
        count = sum(len(task.trials) for task in tasks)
        if (fitted := _fit(model, tasks, target, lowering, share)) is None:
            yield PretrainedBase(op, target, _workloads(tasks), count, None, CostModelMetrics())
            continue
        base, metrics = fitted
        with database.transaction() as session:
            target_id = Targets(session).ensure(parse_target(target)).id
            head = CostModels(session).head(base_family(op), target_id, model)
            new = NewCostModel(
                family=base_family(op),
                target_id=target_id,
                name=model,
                seen_upto=training_data.upto,
                rows=count,
                metrics=metrics.model_dump(exclude_unset=True) | {"view": current_feature_view(model)},
                blob=base.save(),
                parent_id=head.id if head else None,
                snapshot=training_data.snapshot,
            )
            row = CostModels(session).add(new, active=is_worth_it(metrics))
            name = CostModelName(row.family, row.name, row.version)
        yield PretrainedBase(op, target, _workloads(tasks), count, name, metrics, is_worth_it(metrics))
    progress(len(bases), len(bases))


def is_worth_it(metrics: CostModelMetrics) -> bool:
    """Return whether a base model ranks at least WORTH_PAIRS of held-out pairs correctly.

    False if all its rows came from other tuners, because it was tested on none of ours.
    """
    return (metrics.pairwise or 0.0) >= WORTH_PAIRS and not is_trained_on_foreign_only(metrics)


def is_trained_on_foreign_only(metrics: CostModelMetrics) -> bool:
    """Return whether all training rows of a base model came from other tuners."""
    return metrics.foreign_rows is not None and metrics.foreign_rows == metrics.training_rows


def _fit(
    model: str, tasks: Sequence[TaskData], target: str, lowering: Lowering | None, share: float | None
) -> tuple[CostModel, CostModelMetrics] | None:
    if sum(latency is not None for task in tasks for latency in task.latencies_us) < FEWEST_ROWS:
        return None
    make = resolve("cost_model", model)
    sample = _sample(tasks, target)
    rows = rows_for(sample, make.view, lowering)
    if np.count_nonzero(np.isfinite(rows.latencies_us)) < FEWEST_ROWS:
        return None
    available = len(rows)
    if share is not None:
        count, rng = max(FEWEST_ROWS, round(share * len(rows))), np.random.default_rng(0)
        rows = rows.take(select_uncertain_diverse_rows(rows.features, rows.labels, rows.groups, count, rng))
    # The split nearest to a base's use comes first: unseen targets, else unseen tasks.
    group_counts = {"by-target": len(rows.target_names), "by-task": len(rows.workloads), "within-task": 2}
    first, *more_splits = [split for split, count in group_counts.items() if count > 1]
    scores = {first: _evaluate(make, rows, first)}
    for split in more_splits:
        with suppress(InvalidRequest):  # nothing to test: targets may share candidates
            scores[split] = _evaluate(make, rows, split)
    counts: dict[str, int | None] = {"available_rows": available} if share is not None else {}
    counts |= {"tasks": _workloads(tasks), "targets": len(rows.target_names), "training_rows": len(rows)}
    if foreign := sum(len(task.trials) for task in sample if task.foreign):
        counts["foreign_rows"] = foreign
    metrics = {**scores[first], "split": first, "splits": scores, **counts}
    return _train(make(), rows, target), CostModelMetrics.model_validate(metrics)


def _sample(tasks: Sequence[TaskData], target: str) -> Sequence[TaskData]:
    own = thin_tasks([task for task in tasks if task.target == target], BASE_ROWS)
    foreign = [task for task in tasks if task.target != target]
    room = BASE_ROWS - sum(len(task.trials) for task in own)
    return [*own, *(thin_tasks(foreign, room) if room else [])]


def _evaluate(make: type[CostModel], rows: Rows, split: str) -> dict[str, float | None]:
    scores = average_scores(compute_test_scores(make, rows, split, seeds=1))
    return {name: None if isnan(scores[name]) else round(scores[name], 4) for name in TOLD}


def _train(model: CostModel, rows: Rows, target: str) -> CostModel:
    if not isinstance(model, ManyDomains):
        model.fit(rows.features, rows.labels, rows.groups, seed=0)
        return model
    domains = [rows.target_names[number] for number in rows.targets]
    # Without rows of the target, predict as for the target with most rows.
    home = target if target in domains else max(rows.target_names, key=domains.count)
    model.fit_domains(rows.features, rows.labels, rows.groups, domains, home=home, seed=0)
    return model


def _workloads(tasks: Sequence[TaskData]) -> int:
    return len({task.workload for task in tasks})


BATCHES: Final = 4  # the first takes equally many rows of each task, the others are scored
COMMITTEE: Final = 3
LOOKED_AT: Final = 4096  # rows scored per batch, and rows to which distances are measured
NEIGHBOURS: Final = 256  # sampled rows for estimating density
DIRECTIONS: Final = 16  # random projections for distances

Scores = NDArray[np.float64]


def select_evenly(groups: Groups, count: int, rng: np.random.Generator) -> Indices:
    """Return `count` random rows, as evenly spread over the tasks as possible."""
    shuffled = [rng.permutation(lines) for lines in iterate_group_rows(groups)]
    turns = np.concatenate([np.arange(len(lines)) for lines in shuffled])
    order = np.lexsort((rng.random(len(turns)), turns))
    return np.sort(np.concatenate(shuffled)[order[:count]])


def select_uncertain_diverse_rows(
    rows: Matrix, labels: Vector, groups: Groups, count: int, rng: np.random.Generator
) -> Indices:
    """Select rows in batches as in TCL: by disagreement of a committee, density, distance.

    The label of a row is not used before the row is selected. The first batch covers every
    task, if it has as many rows as there are tasks.
    """
    if count >= len(rows):
        return np.arange(len(rows))
    rows = replace_nonfinite(rows)
    spread = rows.std(axis=0)
    even_rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    places = np.asarray(even_rows @ rng.normal(size=(rows.shape[1], DIRECTIONS)), dtype=np.float32)
    parts = [-(-count * part // BATCHES) for part in range(1, BATCHES + 1)]
    selection = select_evenly(groups, parts[0], rng)
    for count_before, count_after in pairwise(parts):
        remaining = np.setdiff1d(np.arange(len(rows)), selection)
        remaining = rng.permutation(remaining)[: max(LOOKED_AT, count_after - count_before)]
        # Disagreement of boosters that are fit to different bootstraps of the selected rows.
        data = make_quantile_matrix(rows[selection], labels[selection])
        weight = weight_fast_rows(labels[selection])
        committee = [
            train_booster(data, counts * weight, rng)
            for counts in bootstrap_counts(rng, len(selection), COMMITTEE)
        ]
        doubt = _ranks(member_scores(committee, rows[remaining]).std(axis=0))
        sample = rng.choice(remaining, min(NEIGHBOURS, len(remaining)))
        crowd = _ranks(-cdist(places[remaining], places[sample]).mean(axis=1))
        distance = _ranks(cdist(places[remaining], places[selection[-LOOKED_AT:]]).min(axis=1))
        scores = doubt + crowd + distance
        best = remaining[np.argsort(-scores, kind="stable")[: count_after - count_before]]
        selection = np.sort(np.concatenate([selection, best]))
    return selection


def _ranks(values: NDArray[np.floating]) -> Scores:
    return np.asarray((rankdata(values) - 1) / max(1, len(values) - 1))
