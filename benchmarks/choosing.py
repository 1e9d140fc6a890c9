"""Accuracy of base models trained on some rows, chosen actively or evenly over tasks.

python -m benchmarks.choosing [DATA] [--model xgboost] [--shares 0.1 0.25 0.5] [--seeds 2] [--json FILE]

DATA is an export's directory or a recording (default: the bundled rows). Only the target with most rows
counts. In five folds by task, the model learns from a share of the rows of four folds; the figure is the
share of pairs of the fifth that it orders correctly.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.hosts import describe_host
from mallorn.core.registry import resolve
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.evaluation import by_task
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.db.bundled.load_bundled import FOLDER
from mallorn.research.pretraining.pretrain import select_evenly, select_uncertain_diverse_rows
from mallorn.research.pretraining.read_measurements import read_training_data
from mallorn.research.pretraining.training_data import Rows, rows_for

FOLDS: Final = 5
Choice = Callable[[Rows, int, np.random.Generator], NDArray[np.int64]]
CHOICES: Final[dict[str, Choice]] = {
    "active": lambda rows, count, rng: select_uncertain_diverse_rows(
        rows.features, rows.labels, rows.groups, count, rng
    ),
    "even": lambda rows, count, rng: select_evenly(rows.groups, count, rng),
}


def main() -> None:
    args = _arguments()
    kind: type[CostModel] = resolve("cost_model", args.model)
    rows = _rows(args.data, kind)
    figures: dict[str, list[float]] = {"all": _accuracies(kind, rows, 1.0, "even", args.seeds)}
    for share in args.shares:
        for name in CHOICES:
            figures[f"{name} {share:g}"] = _accuracies(kind, rows, share, name, args.seeds)
    means = {name: float(np.mean(accuracies)) for name, accuracies in figures.items()}
    for name, mean in means.items():
        print(f"{name:14} {mean:.4f}", flush=True)
    share = args.shares[0]
    headline = means[f"active {share:g}"] - means[f"even {share:g}"]
    if args.json:
        summary = {"headline": headline, "model": args.model, "rows": len(rows), "figures": figures}
        args.json.write_text(json.dumps(describe_host() | summary, indent=1) + "\n")
    print(f"pairs in order, chosen actively less evenly, {share:g} of the rows: {headline:+.4f}")


def _rows(data: Path, kind: type[CostModel]) -> Rows:
    """Return the rows of the target with most rows, with the model's features."""
    tasks = read_training_data(data).tasks
    target, _ = Counter(task.target for task in tasks for _ in task.trials).most_common(1)[0]
    return rows_for([task for task in tasks if task.target == target], kind.view)


def _accuracies(kind: type[CostModel], rows: Rows, share: float, name: str, seeds: int) -> list[float]:
    """Return one pairwise accuracy per seed and fold."""
    accuracies = []
    for seed in range(seeds):
        for split in by_task(rows.tasks, seed=seed, folds=FOLDS):
            train, test = rows.take(split.train), rows.take(split.test)
            count = round(share * len(train))
            train = train.take(CHOICES[name](train, count, np.random.default_rng(seed)))
            model = kind()
            model.fit(train.features, train.labels, train.groups, seed=seed)
            scores = model.predict(test.features).mean
            accuracies.append(pairwise_accuracy(scores, test.labels, test.groups))
    return accuracies


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, default=FOLDER / "rows")
    parser.add_argument("--model", default="xgboost")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.25, 0.5])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
