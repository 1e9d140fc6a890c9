"""What models would have been worth on rows held out, beside a control that learned noise."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from costmodels.base import CostModel
from costmodels.evaluation import fitted as fit
from costmodels.evaluation import judge
from costmodels.metrics import network_score
from costmodels.splits import Split, by_task, scrambled, within_task
from costmodels.splits import by_network as networks_out
from mallorn.core.errors import InvalidRequest
from research.lessons.lesson import Weights
from research.lessons.rows import Rows

FOLDS: Final = 5
NETWORK_TOP: Final = (1, 5)
Figures = dict[str, float]
Networks = Mapping[str, Weights]
Make = Callable[[], CostModel]


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows held out, and what they are: a fold of tasks, a network, a target."""

    name: str
    split: Split
    weights: Mapping[int, float]  # how often the network held out calls each task; empty: none is


def folds(name: str, rows: Rows, networks: Networks, seed: int) -> Iterator[Fold]:
    """The folds of a split. Raises InvalidRequest for rows that it cannot part."""
    match name:
        case "within-task":
            yield Fold("late rows", within_task(rows.tasks, rows.features), {})
        case "by-task":
            _need(len(rows.workloads), "task", "by-task")
            for number, split in enumerate(by_task(rows.tasks, seed=seed, folds=FOLDS)):
                yield Fold(f"fold {number}", split, {})
        case "by-network":
            yield from _by_network(rows, networks)
        case "by-target":
            _need(len(rows.target_names), "target", "by-target")
            for split in by_task(rows.targets, seed=seed):
                yield Fold(rows.target_names[rows.targets[split.test[0]]], split, {})
        case _:
            raise InvalidRequest(f"there is no split {name}", hint=f"known: {', '.join(SPLITS)}")


SPLITS: Final = ("within-task", "by-task", "by-network", "by-target")


def figures(
    make: Make, rows: Rows, split: str, seeds: int, networks: Networks | None = None, control: bool = False
) -> list[Figures]:
    """One set of figures a seed, each the mean over the folds; with `control` labels are dealt anew first."""
    data = rows.with_labels(scrambled(rows.labels, rows.groups, seed=0)) if control else rows
    return [
        mean([_judged(make, data, fold, seed) for fold in folds(split, data, networks or {}, seed)])
        for seed in range(seeds)
    ]


def mean(found: list[Figures]) -> Figures:
    """Figure by figure; what could not be told of one is left out of its mean."""
    return {name: _mean([figures[name] for figures in found if name in figures]) for name in found[0]}


def _mean(values: list[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _judged(make: Make, rows: Rows, fold: Fold, seed: int) -> Figures:
    model = fit(make, rows.features, rows.labels, rows.groups, fold.split, seed=seed)
    test = fold.split.test
    mean_score, spread = model.predict(rows.features[test])
    found = asdict(judge(mean_score, spread, rows.labels[test], rows.groups[test]))
    if fold.weights:
        for top in NETWORK_TOP:
            found[f"network_{top}"] = network_score(
                mean_score, rows.latencies_us[test], rows.tasks[test], dict(fold.weights), top
            )
    return found


def _by_network(rows: Rows, networks: Networks) -> Iterator[Fold]:
    numbers = {key: number for number, key in enumerate(rows.workloads)}
    known = {
        name: {numbers[key]: float(weight) for key, weight in weights.items() if key in numbers}
        for name, weights in networks.items()
    }
    measured = {name: weights for name, weights in known.items() if weights}
    _need(len(measured), "network", "by-network")
    for name, split in networks_out(rows.tasks, {name: set(own) for name, own in measured.items()}):
        yield Fold(name, split, measured[name])


def _need(count: int, what: str, split: str) -> None:
    if count < 2:
        raise InvalidRequest(
            f"the measurements are of {count} {what}{'' if count == 1 else 's'}: the split {split} needs two",
            hint="mallorn evaluate MODEL --split within-task",
        )
