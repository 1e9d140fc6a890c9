"""Cost of a refit by the number of rows, up to a million synthetic rows; needs no TVM.

python -m benchmarks.retrain [MODEL ...] [--rows 1000 10000 100000 1000000] [--repeats 3] [--json FILE]

A refit labels all rows, draws a sample (the newest, the best, some others), extracts its features and
fits the model. Only the draw, with labelling, grows with the rows. All takes a minute or two.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.hosts import describe_host
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import resolve
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import bounded_sample, is_informative, labels
from mallorn.costmodels.views import DECISIONS
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.workers.round.train_cost_model import MAX_ROWS

SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
REFERENCE: Final = 10_000  # smallest of SIZES at which the sample is full
POOL: Final = 20_000  # distinct candidates; further rows repeat them with other noise
SHAPES: Final = ((256, 256, 256), (128, 512, 64), (64, 64, 1024), (512, 256, 128))
NOISE: Final = 0.05
WARM_UP: Final = 200


@dataclass(frozen=True, slots=True)
class Family:
    """Synthetic rows of one family, oldest first."""

    spaces: Sequence[SyntheticSpace]
    pools: Sequence[Sequence[Candidate]]
    groups: NDArray[np.int64]
    places: NDArray[np.int64]  # index in the pool of the row's group
    latencies_us: Sequence[float | None]
    outcomes: Sequence[Outcome]


def main() -> None:
    """Run the benchmark and write its JSON file."""
    options = _arguments()
    print(f"{'':14}{'rows':>10}{'draw s':>9}{'features s':>12}{'fit s':>8}{'refit s':>9}")
    results = {name: compare(name, options.rows, options.repeats) for name in options.models}
    slowest = max(results, key=lambda name: growth(results[name]))
    headline = (
        f"a refit on {max(options.rows):,} rows takes {growth(results[slowest]):.1f} times one on "
        f"{_reference(results[slowest]):,} ({slowest})"
    )
    if options.json:
        content = {"models": results, "sample": MAX_ROWS, "repeats": options.repeats, "headline": headline}
        options.json.write_text(json.dumps(content | describe_host(), indent=1) + "\n")
    print(headline)


def compare(name: str, sizes: Sequence[int], repeats: int) -> dict[str, dict[str, float]]:
    """Return median seconds of each part of a refit, by number of rows; print each row."""
    results = {}
    refit(name, made_up(WARM_UP), 0)  # warm up: imports on first use do not count
    for size in sizes:
        family = made_up(size)
        runs = [refit(name, family, seed) for seed in range(repeats)]
        medians = {part: median(run[part] for run in runs) for part in runs[0]}
        results[str(size)] = medians | {"refit": sum(medians.values())}
        parts = f"{medians['draw']:9.3f}{medians['features']:12.3f}{medians['fit']:8.3f}"
        print(f"{name:14}{size:10,}{parts}{results[str(size)]['refit']:9.3f}", flush=True)
    return results


def growth(found: dict[str, dict[str, float]]) -> float:
    """Return a refit's seconds with the most rows over those at the reference size."""
    return found[str(max(map(int, found)))]["refit"] / found[str(_reference(found))]["refit"]


def _reference(results: dict[str, Any]) -> int:
    sizes = sorted(map(int, results))
    return next((size for size in sizes if size >= REFERENCE), sizes[-1])


def made_up(size: int) -> Family:
    """Generate rows of several matrix products: latencies of a formula, with noise."""
    rng = np.random.default_rng(size)
    spaces = [SyntheticSpace(*shape) for shape in SHAPES]
    pools = [space.sample(rng, min(size, POOL) // len(spaces) + 1) for space in spaces]
    latencies = [space.latency_us(pool) for space, pool in zip(spaces, pools, strict=True)]
    groups = rng.integers(len(spaces), size=size)
    places = np.array([rng.integers(len(pools[group])) for group in groups])
    noise = np.exp(rng.normal(0, NOISE, size))
    times = [latencies[group][row] * factor for group, row, factor in zip(groups, places, noise, strict=True)]
    valid = [bool(np.isfinite(us)) for us in times]
    return Family(
        spaces=spaces,
        pools=pools,
        groups=groups,
        places=places,
        latencies_us=[float(us) if ok else None for us, ok in zip(times, valid, strict=True)],
        outcomes=[Outcome.OK if ok else Outcome.BUILD_ERROR for ok in valid],
    )


def refit(name: str, family: Family, seed: int) -> dict[str, float]:
    """Return wall seconds of the parts of a refit, as in `mallorn.workers.round.train_cost_model`."""
    started = time.perf_counter()
    label = labels(family.latencies_us, family.groups, family.outcomes)
    useful = np.flatnonzero(is_informative(family.outcomes))
    chosen = useful[bounded_sample(label[useful], MAX_ROWS, seed=seed)]
    sampled = time.perf_counter()
    features = describe(family, chosen)
    described = time.perf_counter()
    model: CostModel = resolve("cost_model", name)()
    model.fit(features, label[chosen], family.groups[chosen], seed=seed)
    fitted = time.perf_counter()
    return {"draw": sampled - started, "features": described - sampled, "fit": fitted - described}


def describe(family: Family, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the features of the sampled rows."""
    rows = np.zeros((len(chosen), DECISIONS.width), dtype=np.float32)
    for group, (space, pool) in enumerate(zip(family.spaces, family.pools, strict=True)):
        lines = np.flatnonzero(family.groups[chosen] == group)
        candidates = [pool[place] for place in family.places[chosen[lines]]]
        rows[lines] = space.features(candidates)
    return rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", default=["xgboost", "ensemble"])
    parser.add_argument("--rows", nargs="+", type=int, default=SIZES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
