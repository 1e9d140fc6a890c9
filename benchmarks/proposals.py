"""Cost of a round of proposals of every searcher: 64 of about 4,000, for a convolution.

python -m benchmarks.proposals [--search NAME ...] [--lengths 200 2000] [--repeats 5] [--json FILE]

No compiler runs: the space is the full one of a recorded task, and histories are synthetic:
candidates of the space with latencies that a model of the recording predicts; one in 16
failed. Times are medians over the repeats, each with a different history. The headline is wall
seconds of the default and of the slowest searcher with the shortest history, and the largest
ratio of processor seconds with the longest history to those with the shortest.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from math import exp
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from benchmarks.hosts import describe_host
from benchmarks.lab.replay_search import RecordedSpace, WideSpace
from mallorn.core.errors import NotFound
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import REGISTRY, resolve
from mallorn.costmodels.base import CostModel
from mallorn.research.replay.recorded_task import RecordedTask
from mallorn.research.replay.recording_file import read_tasks
from mallorn.searchers.base import Searcher, Trial
from mallorn.searchers.simulate_search import fit_on_history
from mallorn.searchers.space import Candidate, Space

SPACES: Final = Path("benchmarks/data/spaces.parquet")
DEFAULTS: Final = JobOptions()
FAILS: Final = 16  # one trial in this many
LEAST_SEC: Final = 0.01  # growth from smaller values is noise
Figures = dict[int, dict[str, float]]  # keyed by length of the history


def main() -> None:
    """Measure all searchers and print the figures."""
    options = _arguments()
    os.environ["OMP_NUM_THREADS"] = "1"
    task = _task(options.spaces, options.task)
    space, model = learned(task)
    histories = [_history(space, model, max(options.lengths), seed) for seed in range(options.repeats)]
    print(f"{task.name}: wall and processor seconds by length of the history")
    results = {name: _figures(name, space, model, histories, options) for name in options.search}
    headline = _headline(results, min(options.lengths), max(options.lengths))
    if options.json:
        raw = {"task": task.name, "count": options.count, "repeats": options.repeats, "searchers": results}
        options.json.write_text(json.dumps(raw | {"headline": headline} | describe_host(), indent=1) + "\n")
    print(headline)


def _task(path: Path, op: str) -> RecordedTask:
    """Return the first recorded task of the operator with a valid time."""
    for task in read_tasks(path):
        if task.op == op and task.optimum_us is not None:
            return task
    raise NotFound(f"{path} holds no {op}", hint="mallorn record MODEL.onnx")


def learned(task: RecordedTask) -> tuple[Space, CostModel]:
    """Return the task's full space, and a default model fitted to its recorded trials."""
    recorded = RecordedSpace(task)
    space = WideSpace(recorded)
    trials = [recorded.measure(candidate) for candidate in recorded.candidates]
    return space, fit_on_history(space, trials, resolve("cost_model", DEFAULTS.cost_model), seed=0)


def _history(space: Space, model: CostModel, length: int, seed: int) -> list[Trial]:
    rng = np.random.default_rng(seed)
    candidates = list(dict.fromkeys(space.sample(rng, 2 * length)))[:length]
    speeds = model.predict(space.features(candidates)).mean.tolist()
    return [_trial(each, 1000.0 * exp(-speed), rng) for each, speed in zip(candidates, speeds, strict=True)]


def _trial(candidate: Candidate, time_us: float, rng: np.random.Generator) -> Trial:
    origin, build_ms = str(rng.choice(sorted(REGISTRY["search"]))), 400.0 * rng.lognormal(sigma=0.3)
    if not rng.integers(FAILS):
        return Trial(candidate, Outcome.RUN_ERROR, None, origin, build_ms)
    return Trial(candidate, Outcome.OK, time_us, origin, build_ms)


def _figures(
    name: str, space: Space, model: CostModel, lives: Sequence[Sequence[Trial]], options: argparse.Namespace
) -> Figures:
    searcher: Searcher = resolve("search", name)(resolve("sampler", DEFAULTS.sampler)())
    _seconds(searcher, space, lives[0][:64], model, options.count)  # warm up imports and caches
    figures: Figures = {}
    for length in sorted(options.lengths):
        runs = [_seconds(searcher, space, history[:length], model, options.count) for history in lives]
        wall, processor = map(median, zip(*runs, strict=True))
        figures[length] = {"wall_sec": wall, "processor_sec": processor}
    line = "".join(f"{f['wall_sec']:10.3f}{f['processor_sec']:8.3f}" for f in figures.values())
    print(f"{name:14}{line}", flush=True)
    return figures


def _seconds(
    searcher: Searcher, space: Space, history: Sequence[Trial], model: CostModel, count: int
) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    searcher.propose(space, history, model, count, np.random.default_rng(len(history)))
    return time.perf_counter() - wall, time.process_time() - processor


def _headline(results: dict[str, Figures], short: int, long: int) -> str:
    wall = {name: figures[short]["wall_sec"] for name, figures in results.items()}
    names = dict.fromkeys([*filter(wall.__contains__, [DEFAULTS.search]), max(wall, key=wall.__getitem__)])
    ratios = [_spent(figures, long) / _spent(figures, short) for figures in results.values()]
    seconds = ", ".join(f"{name} {wall[name]:.3f} s" for name in names)
    return f"{seconds}; after {long} trials at most {max(ratios):.2f} times as long"


def _spent(figures: Figures, length: int) -> float:
    return max(LEAST_SEC, figures[length]["processor_sec"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spaces", type=Path, default=SPACES, help="what `mallorn record` wrote")
    parser.add_argument("--task", default="conv2d", metavar="OPERATOR")
    parser.add_argument("--search", nargs="+", default=sorted(REGISTRY["search"]), metavar="NAME")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[200, 2000], help="of the history, in trials"
    )
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
