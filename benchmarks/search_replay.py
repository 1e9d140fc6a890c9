"""Compares searchers, models and samplers on recorded and synthetic spaces, without TVM.

python -m benchmarks.search_replay [--quick] [--grid star|all] [--jobs 8] [--cells FILE] [--svg F] [--json F]

`star` changes one default of a job at a time, `all` takes every combination. Recorded tasks
are used in two ways (docs/replay.md): `recorded`, where every step gives a recorded candidate,
and `wide`, where a searcher moves freely and its proposals are moved to the nearest recorded
candidates. With --cells, finished runs are stored at once; a second run adds missing ones.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.hosts import describe_host
from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.cells import BATCH, Cell, parse, run_all
from benchmarks.lab.chart import chart
from benchmarks.lab.grid import STANDARD, Axes, Combination
from benchmarks.lab.replay_search import Arena, RecordedArena, ShownSpace
from benchmarks.lab.summary import FACTOR, Figures, summarise
from benchmarks.lab.synthetic_arena import SyntheticArena
from mallorn_research.replay.recording_file import read_facts, read_tasks, select_every_operator

SPACES: Final = Path("benchmarks/data/spaces.parquet")
SHAPES: Final = ((256, 512, 64), (256, 256, 256), (512, 512, 512), (64, 1000, 100))
QUICK_TASKS: Final = 4
QUICK_SEEDS: Final = 1
SYNTHETIC: Final = "synthetic"
HEADING: Final = f"{'':44}{'trials to 1.05x':>16}{'95 %':>14}{'reached':>9}{'final':>8}{'ms':>7}{'fit ms':>8}"


def main() -> None:
    """Run missing cells, then print the summary of all."""
    options = _arguments()
    # Use one thread per process: boosters' threads waste most time waiting on small data.
    os.environ["OMP_NUM_THREADS"] = "1"
    arenas = _arenas(options)
    cells = CellFile(options.cells, parse)
    selected = list(_cells(arenas, _combinations(options), options))
    missing = [(arena, cell) for arena, cell in selected if cell not in cells]
    for count, finished in enumerate(run_all(missing, options.jobs), 1):
        cells.add(finished)
        print(f"\r{count} of {len(missing)} runs", end="", file=sys.stderr, flush=True)
    figures = summarise(cells.of(cell for _, cell in selected))
    _print(figures, arenas)
    if options.svg:
        options.svg.write_text(_picture(figures, options))
    headline = _headline(figures)
    if options.json:
        options.json.write_text(json.dumps(_raw(figures, arenas, options, headline), indent=1) + "\n")
    print(headline)


def _arenas(options: argparse.Namespace) -> list[Arena]:
    tasks = [task for task in read_tasks(options.spaces) if task.optimum_us is not None]
    chosen = select_every_operator(tasks, options.tasks or len(tasks))
    recorded = [RecordedArena(task, view) for view in options.view for task in chosen]
    shapes = SHAPES[: options.shapes]
    return [*recorded, *(SyntheticArena(*shape) for shape in shapes)]


def _combinations(options: argparse.Namespace) -> list[Combination]:
    axes = Axes(options.search, options.cost_model, options.sampler)
    return axes.star() if options.grid == "star" else axes.all()


def _cells(
    arenas: Iterable[Arena], combinations: Sequence[Combination], options: argparse.Namespace
) -> Iterator[tuple[Arena, Cell]]:
    """Yield cells by seed, so that an interrupted comparison has run all alike."""
    for seed in range(options.seeds):
        for arena in arenas:
            for combination in combinations:
                yield arena, Cell(arena.kind, arena.name, combination, seed, options.trials)


def _print(figures: Sequence[Figures], arenas: Sequence[Arena]) -> None:
    for kind in dict.fromkeys(each.kind for each in figures):
        print(f"\n{kind}\n{HEADING}")
        for each in (each for each in figures if each.kind == kind):
            low, high = each.trials_interval
            print(
                f"{each.combination.key:44}{each.trials:16.1f}{f'{low:.0f}..{high:.0f}':>14}"
                f"{each.reached:9.0%}{each.final:8.3f}{each.propose_ms:7.0f}{each.fit_ms:8.0f}"
            )
        if even := _even(arenas, kind):
            print(f"{'(draws without looking)':44}{even:16.1f}")


def _even(arenas: Sequence[Arena], kind: str) -> float | None:
    """Return the geometric mean of trials that random draws from recordings need."""
    draws = [even_trials(a, FACTOR) for a in arenas if isinstance(a, RecordedArena) and a.kind == kind]
    return float(np.exp(np.mean(np.log(draws)))) if draws else None


def even_trials(arena: RecordedArena, factor: float) -> float:
    """Return the expected random trials until one is within `factor` of the optimum."""
    trials = arena.recorded.task.trials
    good = sum(t.latency_us is not None and t.latency_us <= factor * arena.optimum_us for t in trials)
    return (len(trials) + 1) / (good + 1)


def _picture(figures: Sequence[Figures], options: argparse.Namespace) -> str:
    """Return an SVG chart of all searchers with the default cost model and sampler."""
    trials = range(1, options.trials + 1)
    panels: dict[str, dict[str, list[float]]] = {}
    for each in figures:
        with_defaults = Combination(each.combination.search, STANDARD.cost_model, STANDARD.sampler)
        if each.combination == with_defaults:
            panels.setdefault(each.kind, {})[each.combination.search] = each.curve(trials)
    return chart(panels, "Best found so far / optimum, geometric mean over tasks and seeds")


def _headline(figures: Sequence[Figures]) -> str:
    first = figures[0]
    standard = next((e for e in figures if (e.kind, e.combination) == (first.kind, STANDARD)), first)
    return (
        f"fewest trials to {FACTOR}x on {first.kind} spaces: {first.combination.key} {first.trials:.1f}; "
        f"{standard.combination.key} {standard.trials:.1f}"
    )


def _raw(
    figures: Sequence[Figures], arenas: Sequence[Arena], options: argparse.Namespace, headline: str
) -> dict[str, Any]:
    return {
        "headline": headline,
        "trials": options.trials,
        "round": BATCH,
        "seeds": options.seeds,
        "recorded_on": read_facts(options.spaces),
        "arenas": [[arena.kind, arena.name, arena.optimum_us] for arena in arenas],
        "figures": [each.as_json() for each in figures],
    } | describe_host()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spaces", type=Path, default=SPACES, help="what `mallorn record` wrote")
    parser.add_argument("--search", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--cost-model", nargs="+", default=[], metavar="NAME", help="default: all, and none")
    parser.add_argument("--sampler", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--grid", choices=("star", "all"), default="all")
    parser.add_argument(
        "--view", nargs="+", type=ShownSpace, choices=list(ShownSpace), default=list(ShownSpace)
    )
    parser.add_argument("--tasks", type=int, help="recorded tasks, of every operator some; default: all")
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="made-up spaces")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="processes; their times are those of a busy host")
    parser.add_argument("--quick", action="store_true", help="star, 4 tasks, 1 made-up space, 1 seed")
    parser.add_argument("--cells", type=Path, help="where finished runs are stored, as JSON lines")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.grid, options.tasks, options.shapes, options.seeds = "star", QUICK_TASKS, 1, QUICK_SEEDS
    return options


if __name__ == "__main__":
    main()
