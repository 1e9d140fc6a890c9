"""Cost models side by side, on recorded measurements and on made-up ones: no TVM, no device, minutes.

python -m benchmarks.costmodels [MODEL ...] [--data recorded|synthetic|PATH] [--seeds 3] [--json FILE]

Within task a model learns from the first 60 % of each task's rows and is judged on the rest; by task it is
judged on tasks that it never saw, five folds; by network on networks none of whose tasks it saw, where the
data tells networks (PATH: what `mallorn dataset export` wrote). `scrambled` learns from labels dealt anew
within each task, and must order at chance. One model learns all tasks at once, whatever family a job would
put them in. `mallorn evaluate` is the same on one split.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.hosts import describe_host
from costmodels.base import CostModel
from mallorn.core.errors import Unavailable
from mallorn.core.names import REGISTRY, resolve
from workers.lessons.from_parquet import read_lessons
from workers.lessons.judging import figures, mean
from workers.lessons.lesson import Lesson, Lessons, Weights
from workers.lessons.rows import Rows
from workers.lessons.views import rows_for
from workers.search.synthetic import SyntheticSpace
from workers.viewing import LOWERED

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
SCORED: Final = 2000
CONTROL: Final = "scrambled"
SHOWN: Final = ("pairwise", "peak_1", "peak_5", "rmse", "interval_80")
SPLITS: Final = {"within_task": "within-task", "by_task": "by-task", "by_network": "by-network"}
Figures = dict[str, dict[str, float]]
RowsFor = Callable[[str], Rows]  # by the view that a model reads


def main() -> None:
    """Run and write down."""
    options = _arguments()
    lessons = made_up(ROWS_A_SHAPE) if options.data == "synthetic" else recorded(options.data)
    print(f"{lessons.rows} measurements of {len(lessons.tasks)} tasks ({lessons.snapshot})")
    names = options.models or list(able(sorted(REGISTRY["cost_model"])))
    found = dict(compare(names, lambda view: rows_for(lessons.tasks, view), options.seeds, lessons.networks))
    best = max(
        (name for name in found if name != CONTROL), key=lambda name: found[name]["by_task"]["pairwise"]
    )
    headline = f"pairs in order of tasks never seen: {best} {found[best]['by_task']['pairwise']:.3f}"
    if options.json:
        shown = {"data": options.data, "snapshot": lessons.snapshot, "seeds": options.seeds, "figures": found}
        shown["headline"] = headline
        options.json.write_text(json.dumps(shown | describe_host(), indent=1) + "\n")
    print(headline)


def able(names: Iterable[str]) -> Iterator[str]:
    """The models that can be judged here; of the others, why not."""
    for name in names:
        make = resolve("cost_model", name)
        if make.view in LOWERED:
            print(f"{name} is left out: what it reads takes a compiler (mallorn evaluate {name} --data DIR)")
            continue
        try:
            make()
        except Unavailable as missing:
            print(f"{name} is left out: {missing.message}")
            continue
        yield name


def recorded(data: str) -> Lessons:
    """What real devices answered, in the order they were asked."""
    return read_lessons(RECORDED if data == "recorded" else Path(data))


def made_up(rows: int) -> Lessons:
    """What a formula answers, with a little noise, for products of matrices of several shapes."""
    return Lessons([_made_up(shape, rows, seed) for seed, shape in enumerate(SHAPES)], "synthetic")


def _made_up(shape: tuple[int, int, int], rows: int, seed: int) -> Lesson:
    space, rng = SyntheticSpace(*shape), np.random.default_rng(seed)
    candidates = space.sample(rng, rows)
    trials = [space.measure(candidate) for candidate in candidates]
    noise = np.exp(rng.normal(0, NOISE, len(trials)))
    return Lesson(
        *("x".join(map(str, shape)), "matmul", "{}", "made up"),
        descriptors=tuple(np.log2(space.shape).tolist()),
        sketches=space.by_key,
        candidates=candidates,
        outcomes=[trial.outcome for trial in trials],
        latencies_us=[t.latency_us and float(t.latency_us * n) for t, n in zip(trials, noise, strict=True)],
    )


def compare(
    names: Iterable[str], rows_for_view: RowsFor, seeds: int, networks: Mapping[str, Weights]
) -> Iterator[tuple[str, Figures]]:
    """The figures of each model, and of one that learned from scrambled labels; printed as they come."""
    splits = {key: name for key, name in SPLITS.items() if name != "by-network" or len(networks) > 1}
    print(" " * 30 + "".join(f"{name:>{12 * len(SHOWN)}}" for name in splits.values()))
    print(f"{'':14}{'fit s':>7}{'score ms':>9}" + len(splits) * "".join(f"{name:>12}" for name in SHOWN))
    for name in (*names, CONTROL):
        make = resolve("cost_model", "xgboost" if name == CONTROL else name)
        rows = rows_for_view(make.view)
        found: Figures = {
            key: mean(figures(make, rows, split, seeds, networks, control=name == CONTROL))
            for key, split in splits.items()
        }
        took = cost(make, rows)
        shown = [found[key][figure] for key in splits for figure in SHOWN]
        print(
            f"{name:14}{took['fit_sec']:7.2f}{took['score_ms']:9.0f}" + "".join(f"{v:12.3f}" for v in shown)
        )
        yield name, found | {"cost": took}


def cost(make: Callable[[], CostModel], rows: Rows) -> dict[str, float]:
    """Processor seconds of a fit on all rows, and milliseconds to score two thousand."""
    model, start = make(), time.process_time()
    model.fit(rows.features, rows.labels, rows.groups, seed=0)
    fitted = time.process_time()
    model.predict(np.resize(rows.features, (SCORED, rows.features.shape[1])))
    return {"fit_sec": fitted - start, "score_ms": 1e3 * (time.process_time() - fitted)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--data", default="recorded", help="recorded, synthetic, or Parquet files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
