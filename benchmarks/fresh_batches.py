"""How models order new batches, and what they find, replayed on recorded candidates.

python -m benchmarks.fresh_batches [MODEL[/SAMPLER] ...] [--data recorded|PATH] [--cells FILE] [--json FILE]

Tasks of one operator and target share a model, as by default in a job, and take a batch in
turn. The first is the same for all models: the defaults, if the recording marks them, and
random candidates. Then the model is fitted to all batches so far, and the sampler chooses from
all other recorded candidates: a batch holds the model's favourites, so its pairs are hard to
order. `none` draws at random. Pairs count while three quarters of a recording are left, since
a real space does not run out; `pairs apart` differ by more than 3 %, as nearer ones may be
noise. Figures are means over tasks of means over batches and seeds; differences to the first
MODEL are over the same tasks, ± the standard error over tasks. With --cells, finished runs are
stored at once, and a second run adds missing ones.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.costmodels.rows import LEAST_ROWS, Bench, load
from benchmarks.hosts import describe_host
from benchmarks.lab.cell_file import CellFile
from benchmarks.lab.grid import NO_MODEL
from benchmarks.lab.rounds import Batch, Family, Pool, best_after, by_task, play
from mallorn.core.errors import MallornError
from mallorn.core.registry import resolve
from mallorn.costmodels.views import DECISIONS
from mallorn.searchers.base import DEFAULT, proposal_method_of

ARMS: Final = ("xgboost", NO_MODEL, "forest", "lightgbm-rank", "residual")
SAMPLER: Final = "topk"
AFTER: Final = (32, 64, 128, 256)
NEAR: Final = 1.02
MUCH: Final = 0.75  # share of a recording that must be left for its pairs to count
SHARES: Final = ("pairs", "pairs apart")
Tasks = Mapping[str, Sequence[float]]
Report = dict[str, dict[str, Any]]  # keyed by arm


@dataclass(frozen=True, slots=True)
class Cell:
    """A run: all tasks of a family with one model and sampler (`arm`) and one seed."""

    rows: str  # Bench.fingerprint
    arm: str
    family: str
    rounds: int
    batch: int
    seed: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished run, with the batches of each task by name."""

    cell: Cell
    tasks: Mapping[str, Sequence[Batch]]


def parse(row: dict[str, Any]) -> Finished:
    """Parse a stored run."""
    tasks = {name: [Batch(**batch) for batch in batches] for name, batches in row["tasks"].items()}
    return Finished(Cell(**row["cell"]), tasks)


def main() -> None:
    """Run missing cells, then print the report."""
    options = _arguments()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        _compare(options)
    except MallornError as error:
        sys.exit(f"{error.message}\n{error.hint}")


def _compare(options: argparse.Namespace) -> None:
    bench = load(options.data, options.least_rows)
    stored, cells = CellFile(options.cells, parse), list(_cells(bench, options))
    for count, cell in enumerate(missing := [cell for cell in cells if cell not in stored], 1):
        stored.add(run(bench, cell))
        print(f"{count} of {len(missing)}: {cell.arm} {cell.family}, seed {cell.seed}", file=sys.stderr)
    report = summarise(stored.of(cells), options.arms)
    print("\n".join(lines(report)))
    if options.json:
        raw = {"headline": headline(report), "rows": bench.fingerprint, "arms": report} | describe_host()
        options.json.write_text(json.dumps(raw | {"seeds": options.seeds}, indent=1) + "\n")
    print(headline(report))


def families(bench: Bench) -> dict[str, list[int]]:
    """Return the task numbers of each operator on each target."""
    numbers: dict[str, list[int]] = {}
    targets = sorted({task.target for task in bench.training_data.tasks})
    for number, task in enumerate(bench.training_data.tasks):
        numbers.setdefault(f"{task.op} {targets.index(task.target)}", []).append(number)
    return numbers


def _cells(bench: Bench, options: argparse.Namespace) -> Iterator[Cell]:
    """Yield cells by seed, so that an interrupted comparison has run all arms alike."""
    for seed in range(options.seeds):
        for family in families(bench):
            for arm in options.arms:
                yield Cell(bench.fingerprint, arm, family, options.rounds, options.batch, seed)


def run(bench: Bench, cell: Cell) -> Finished:
    """Replay one cell."""
    numbers = families(bench)[cell.family]
    model, _, sampler = cell.arm.partition("/")
    make = None if model == NO_MODEL else resolve("cost_model", model)
    family = _family(bench, numbers, make().view if make else DECISIONS.name)
    chooser = resolve("sampler", sampler or SAMPLER)()
    played = play(family, make, chooser, rounds=cell.rounds, batch=cell.batch, seed=cell.seed)
    return Finished(cell, {bench.task_names[numbers[at]]: batches for at, batches in by_task(played).items()})


def _family(bench: Bench, numbers: Sequence[int], view: str) -> Family:
    decisions, view_rows = bench.plain, bench.rows(view)
    used = np.flatnonzero(np.isin(decisions.groups, numbers))
    tasks = [bench.training_data.tasks[number] for number in numbers]
    trials = [trial for task in tasks for trial in task.trials]
    groups = decisions.groups[used]
    is_default = np.array([proposal_method_of(trial.origin) == DEFAULT for trial in trials], dtype=np.bool_)
    places = [np.flatnonzero(groups == number) for number in numbers]
    return Family(
        [trial.candidate for trial in trials],
        *(view_rows.features[used], decisions.features[used], decisions.labels[used], groups),
        pools=[Pool(lines, lines[is_default[lines]]) for lines in places],
    )


def summarise(finished: Iterable[Finished], arms: Sequence[str]) -> Report:
    """Return mean and difference to the first arm, over tasks, by arm and figure."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {arm: {} for arm in arms}
    for each in finished:
        for task, batches in each.tasks.items():
            for name, value in figures(batches, each.cell.batch).items():
                values[each.cell.arm].setdefault(name, {}).setdefault(task, []).append(value)
    return {
        arm: {name: _figure(name, tasks, values[arms[0]].get(name, {})) for name, tasks in by_figure.items()}
        for arm, by_figure in values.items()
    }


def figures(batches: Sequence[Batch], batch: int) -> dict[str, float]:
    """Return a task's figures; a search that never comes near counts with all its trials."""
    played = batches[-1].trials + batch
    ends = [each.trials + batch for each in batches if best_after(batches, each.trials + batch) <= NEAR]
    judged = [each for each in batches if each.left >= MUCH]
    values = {
        "pairs": _mean([each.pairs for each in judged]),
        "pairs apart": _mean([each.pairs_apart for each in judged]),
        **{f"best after {trials}": best_after(batches, trials) for trials in AFTER if trials < played},
        f"trials to {NEAR}": float(min(ends, default=played)),
    }
    return {name: value for name, value in values.items() if not np.isnan(value)}


def _figure(name: str, tasks: Tasks, bar: Tasks) -> dict[str, float | int | None]:
    """Return mean, difference and error of a figure; ratios are averaged as logarithms."""
    ratios = name not in SHARES
    own = {task: _mean(np.log(values) if ratios else values) for task, values in tasks.items()}
    gaps = [own[task] - _mean(np.log(bar[task]) if ratios else bar[task]) for task in own.keys() & bar.keys()]
    mean = _mean(list(own.values()))
    return {
        "mean": float(np.exp(mean)) if ratios else mean,
        "difference": _mean(gaps) if gaps else None,
        "standard_error": float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else None,
        "tasks": len(own),
    }


def _mean(values: Sequence[float] | NDArray[np.float64]) -> float:
    valid = [value for value in values if not np.isnan(value)]
    return float(np.mean(valid)) if valid else float("nan")


def lines(report: Report) -> Iterator[str]:
    """Yield the report as Markdown; differences to the first arm are in hundredths."""
    names = list(dict.fromkeys(name for figures in report.values() for name in figures))
    yield "| | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for arm, figures in report.items():
        yield f"| `{arm}` | {' | '.join(_cell(figures.get(name)) for name in names)} |"


def _cell(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return "-"
    if not figure["difference"]:
        return f"{figure['mean']:.3f}"
    spread = 100 * (figure["standard_error"] or 0.0)
    return f"{figure['mean']:.3f} ({100 * figure['difference']:+.1f} ± {spread:.1f})"


def headline(report: Report) -> str:
    """Return the arm that orders most pairs of its new batches, and the first arm."""
    shares = {arm: figures["pairs"]["mean"] for arm, figures in report.items() if "pairs" in figures}
    if not shares:
        return "no model ordered a fresh batch"
    first, best = next(iter(shares)), max(shares, key=lambda arm: shares[arm])
    return f"pairs of fresh batches in order: {best} {shares[best]:.3f}, {first} {shares[first]:.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    text = f"or {NO_MODEL}; default: {', '.join(ARMS)}"
    parser.add_argument("arms", nargs="*", default=list(ARMS), metavar="MODEL[/SAMPLER]", help=text)
    parser.add_argument("--data", default="recorded", help="recorded, or Parquet files")
    parser.add_argument("--rounds", type=int, default=17)
    parser.add_argument("--batch", type=int, default=16, help="candidates of a task's round")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--least-rows", type=int, default=LEAST_ROWS, help="valid ones, of a task that counts"
    )
    parser.add_argument("--cells", type=Path, help="where finished runs are stored, as JSON lines")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
