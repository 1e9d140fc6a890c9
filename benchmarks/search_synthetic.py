"""Compares searchers on synthetic spaces with a known optimum; takes minutes, no device.

python -m benchmarks.search_synthetic [SEARCHER ...] [--trials 96] [--seeds 8] [--json FILE]

Each searcher tunes two matrix products per seed, in rounds of 16, with and without a cost model.
The figure is best found / optimum, a geometric mean over shapes and seeds: 1.00 is perfect.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.hosts import describe_host
from mallorn.core.registry import list_names, resolve
from mallorn.costmodels.base import CostModel
from mallorn.searchers.synthetic_space import SyntheticSpace, best_us, simulate

SHAPES: Final = ((256, 512, 64), (256, 256, 256))
ROUND: Final = 16


def ratios(
    search: str,
    make_model: Callable[[], CostModel] | None,
    spaces: Sequence[SyntheticSpace],
    trials: int,
    seeds: int,
) -> list[float]:
    """Return best found / optimum for every space and seed."""
    return [
        best_us(
            simulate(
                space, resolve("search", search)(), make_model, trials=trials, round_size=ROUND, seed=seed
            )
        )
        / space.optimum_us
        for space in spaces
        for seed in range(seeds)
    ]


def compare(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Return each searcher's ratios, with and without cost model; print their means."""
    spaces = [SyntheticSpace(*shape) for shape in SHAPES]
    models = {options.cost_model: resolve("cost_model", options.cost_model), "none": None}
    results: dict[str, dict[str, list[float]]] = {}
    print(f"{'searcher':14}" + "".join(f"{name:>12}" for name in models))
    for search in options.searchers or list_names("search"):
        results[search] = {
            name: ratios(search, model, spaces, options.trials, options.seeds)
            for name, model in models.items()
        }
        means = [float(np.exp(np.log(each).mean())) for each in results[search].values()]
        print(f"{search:14}" + "".join(f"{mean:12.3f}" for mean in means), flush=True)
    return results


def main() -> None:
    """Run the benchmark and write its JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("searchers", nargs="*", metavar="SEARCHER")
    parser.add_argument("--trials", type=int, default=96)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--cost-model", default="xgboost")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = compare(options)
    if options.json:
        figures = {
            "trials": options.trials,
            "round": ROUND,
            "shapes": SHAPES,
            "ratios": results,
        } | describe_host()
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
