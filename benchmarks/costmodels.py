"""Cost models side by side, on recorded measurements and on made-up ones: no TVM, no device, minutes.

python -m benchmarks.costmodels [MODEL ...] [--data recorded|synthetic] [--seeds 3] [--json FILE]

Within task a model learns from the first 60 % of each task's rows and is judged on the rest; by task it is
judged on tasks that it never saw, five folds. `scrambled` learns from labels dealt anew within each task,
and must order at chance. One model learns all tasks at once, whatever family a job would put them in.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.hosts import describe_host
from costmodels.base import CostModel, Matrix, Vector
from costmodels.evaluation import Evaluation, evaluate
from costmodels.splits import Split, by_task, scrambled, within_task
from costmodels.training import labels
from mallorn.core.names import REGISTRY, resolve
from mallorn.core.outcomes import Outcome
from workers.lab.space_file import read_tasks
from workers.search.features import describe_all
from workers.search.synthetic import SyntheticSpace

RECORDED: Final = Path("benchmarks/data/spaces.parquet")
SHAPES: Final = (
    (256, 256, 256),
    (128, 512, 64),
    (64, 64, 1024),
    (512, 256, 128),
    (96, 384, 192),
    (1024, 64, 256),
    (32, 1024, 512),
    (196, 512, 128),
    (784, 128, 64),
    (49, 512, 512),
)
ROWS_A_SHAPE: Final = 300
NOISE: Final = 0.05  # log units, as a device that is not alone
FOLDS: Final = 5
SCORED: Final = 2000
CONTROL: Final = "scrambled"
SHOWN: Final = ("pairwise", "peak_1", "peak_5", "rmse", "interval_80")
Figures = dict[str, dict[str, float]]


class Rows(NamedTuple):
    """Measurements as cost models take them; a group is a task."""

    features: Matrix
    labels: Vector
    groups: NDArray[np.int64]


def main() -> None:
    """Run and write down."""
    options = _arguments()
    rows = recorded(RECORDED) if options.data == "recorded" else synthetic(ROWS_A_SHAPE)
    print(f"{len(rows.labels)} measurements of {len(np.unique(rows.groups))} tasks ({options.data})")
    print(f"{'':14}{'fit s':>7}{'score ms':>9}" + 2 * "".join(f"{name:>12}" for name in SHOWN))
    found = dict(compare(options.models or sorted(REGISTRY["cost_model"]), rows, options.seeds))
    best = max(
        (name for name in found if name != CONTROL), key=lambda name: found[name]["by_task"]["pairwise"]
    )
    headline = f"pairs in order of tasks never seen: {best} {found[best]['by_task']['pairwise']:.3f}"
    if options.json:
        shown = {"data": options.data, "seeds": options.seeds, "figures": found, "headline": headline}
        options.json.write_text(json.dumps(shown | describe_host(), indent=1) + "\n")
    print(headline)


def recorded(path: Path) -> Rows:
    """What real devices answered, in the order they were asked."""
    parts = []
    for group, task in enumerate(read_tasks(path)):
        sketches = {sketch.key: sketch for sketch in task.sketches}
        features = describe_all(sketches, task.descriptors, [trial.candidate for trial in task.trials])
        answers = [(trial.latency_us, trial.outcome) for trial in task.trials]
        parts.append(_rows(features, answers, group))
    return Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def synthetic(rows: int) -> Rows:
    """What a formula answers, with a little noise, for products of matrices of several shapes."""
    parts = []
    for group, shape in enumerate(SHAPES):
        space, rng = SyntheticSpace(*shape), np.random.default_rng(group)
        candidates = space.sample(rng, rows)
        trials = [space.measure(candidate) for candidate in candidates]
        noise = np.exp(rng.normal(0, NOISE, len(trials)))
        answers = [(t.latency_us and t.latency_us * n, t.outcome) for t, n in zip(trials, noise, strict=True)]
        parts.append(_rows(space.features(candidates), answers, group))
    return Rows(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def compare(names: Iterable[str], rows: Rows, seeds: int) -> Iterator[tuple[str, Figures]]:
    """The figures of each model, and of one that learned from scrambled labels; printed as they come."""
    dealt = rows._replace(labels=scrambled(rows.labels, rows.groups, seed=0))
    for name, data in [*((name, rows) for name in names), (CONTROL, dealt)]:
        make = resolve("cost_model", "xgboost" if name == CONTROL else name)
        figures = {
            "within_task": judged(make, data, lambda _: [within_task(rows.groups, rows.features)], seeds),
            "by_task": judged(make, data, lambda seed: by_task(rows.groups, folds=FOLDS, seed=seed), seeds),
            "cost": cost(make, data),
        }
        shown = [figures[split][figure] for split in ("within_task", "by_task") for figure in SHOWN]
        took = figures["cost"]
        print(
            f"{name:14}{took['fit_sec']:7.2f}{took['score_ms']:9.0f}" + "".join(f"{v:12.3f}" for v in shown)
        )
        yield name, figures


def judged(
    make: Callable[[], CostModel], rows: Rows, splits: Callable[[int], Iterable[Split]], seeds: int
) -> dict[str, float]:
    """The mean of each figure over splits and seeds."""
    results = [
        asdict(evaluate(make, *rows, split, seed=seed)) for seed in range(seeds) for split in splits(seed)
    ]
    return {field.name: float(np.nanmean([r[field.name] for r in results])) for field in fields(Evaluation)}


def cost(make: Callable[[], CostModel], rows: Rows) -> dict[str, float]:
    """Processor seconds of a fit on all rows, and milliseconds to score two thousand."""
    model, start = make(), time.process_time()
    model.fit(*rows, seed=0)
    fitted = time.process_time()
    model.predict(np.resize(rows.features, (SCORED, rows.features.shape[1])))
    return {"fit_sec": fitted - start, "score_ms": 1e3 * (time.process_time() - fitted)}


def _rows(features: Matrix, answers: list[tuple[Any, Outcome]], group: int) -> Rows:
    groups = np.full(len(answers), group, dtype=np.int64)
    latencies, outcomes = zip(*answers, strict=True)
    return Rows(features, labels(latencies, groups, outcomes), groups)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", choices=("recorded", "synthetic"), default="recorded")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
