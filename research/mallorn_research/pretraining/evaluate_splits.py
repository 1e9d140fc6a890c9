"""Evaluate cost models on held-out rows; as a control, with shuffled labels."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

import numpy as np

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import CostModel
from mallorn_research.costmodels import evaluation
from mallorn_research.costmodels.evaluation import Split, compute_metrics
from mallorn_research.costmodels.metrics import network_score
from mallorn_research.pretraining.training_data import Rows, Weights

FOLDS: Final = 5
NETWORK_TOP: Final = (1, 5)
Figures = dict[str, float]
Networks = Mapping[str, Weights]
Make = Callable[[], CostModel]


@dataclass(frozen=True, slots=True)
class Fold:
    """A split into training and test rows; `name` describes the test rows."""

    name: str
    split: Split
    weights: Mapping[int, float]  # calls per task of the held-out network; else empty


def folds(name: str, rows: Rows, networks: Networks, seed: int) -> Iterator[Fold]:
    """Yield the folds of a split. Raises InvalidRequest if it is unknown or lacks data."""
    match name:
        case "within-task":
            yield Fold("late rows", evaluation.within_task(rows.tasks, rows.features), {})
        case "by-task":
            _require_two(len(rows.workloads), "task", "by-task")
            for number, split in enumerate(evaluation.by_task(rows.tasks, seed=seed, folds=FOLDS)):
                yield Fold(f"fold {number}", split, {})
        case "by-network":
            numbers = {key: number for number, key in enumerate(rows.workloads)}
            calls_by_network = {
                name: {numbers[key]: float(weight) for key, weight in weights.items() if key in numbers}
                for name, weights in networks.items()
            }
            calls_by_network = {name: calls for name, calls in calls_by_network.items() if calls}
            _require_two(len(calls_by_network), "network", "by-network")
            tasks_by_network = {name: set(calls) for name, calls in calls_by_network.items()}
            for network, split in evaluation.by_network(rows.tasks, tasks_by_network):
                yield Fold(network, split, calls_by_network[network])
        case "by-target":
            _require_two(len(rows.target_names), "target", "by-target")
            for split in evaluation.by_task(rows.targets, seed=seed):
                yield Fold(rows.target_names[rows.targets[split.test[0]]], split, {})
        case "by-host":
            _require_two(len(rows.host_names), "host", "by-host")
            for split in evaluation.by_host(rows.hosts):
                yield Fold(rows.host_names[rows.hosts[split.test[0]]], split, {})
        case _:
            raise InvalidRequest(f"there is no split {name}", hint=f"known: {', '.join(SPLITS)}")


SPLITS: Final = ("within-task", "by-task", "by-network", "by-target", "by-host")


def compute_test_scores(
    make: Make, rows: Rows, split: str, seeds: int, networks: Networks | None = None, control: bool = False
) -> list[Figures]:
    """Return the test scores per seed, averaged over folds; `control` shuffles labels."""
    if control:
        rows = replace(rows, labels=evaluation.scramble_labels(rows.labels, rows.groups, seed=0))
    scores: list[Figures] = []
    for seed in range(seeds):
        parts = folds(split, rows, networks or {}, seed)
        scores.append(average_scores([_score_fold(make, rows, fold, seed) for fold in parts]))
    return scores


def average_scores(rows: list[Figures]) -> Figures:
    """Average each score over the rows without NaN; NaN if a score has no other value."""
    valid = {name: [row[name] for row in rows if name in row and not np.isnan(row[name])] for name in rows[0]}
    return {name: float(np.mean(values)) if values else float("nan") for name, values in valid.items()}


def _score_fold(make: Make, rows: Rows, fold: Fold, seed: int) -> Figures:
    model = evaluation.fit_on_split(make, rows.features, rows.labels, rows.groups, fold.split, seed=seed)
    test = fold.split.test
    mean_score, spread = model.predict(rows.features[test])
    scores = asdict(compute_metrics(mean_score, spread, rows.labels[test], rows.groups[test]))
    if fold.weights:
        for top in NETWORK_TOP:
            scores[f"network_{top}"] = network_score(
                mean_score, rows.latencies_us[test], rows.tasks[test], dict(fold.weights), top
            )
    return scores


def _require_two(count: int, noun: str, split: str) -> None:
    if count < 2:
        raise InvalidRequest(
            f"the measurements are of {count} {noun}{'' if count == 1 else 's'}; the split {split} needs two",
            hint="mallorn costmodels evaluate MODEL --split within-task",
        )
