"""The runs of a comparison: a model on a fold with a seed."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any, Final

import numpy as np

from benchmarks.costmodels.arms import Arm, arm
from benchmarks.costmodels.rows import Bench, load
from benchmarks.costmodels.task_figures import judge_tasks
from mallorn_research.costmodels.evaluation import NORMAL_80, fit_on_split, scramble_labels
from mallorn_research.costmodels.metrics import coverage

Figures = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Cell:
    """A model that learns one side of a fold, with a seed, and is judged on the other."""

    rows: str  # Bench.fingerprint
    arm: str
    split: str
    fold: str
    seed: int


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run came to, task by task; seconds are those of the processor.

    `interval_80` is the share of labels in intervals that should hold 80 %.
    """

    cell: Cell
    learned: int
    judged: int
    fit_sec: float
    score_sec: float
    interval_80: float
    tasks: Mapping[str, Figures]


def parse(row: dict[str, Any]) -> Finished:
    """A finished run as it was stored."""
    return Finished(**row | {"cell": Cell(**row["cell"])})


def cells(bench: Bench, arms: Sequence[Arm], seeds: int) -> Iterator[Cell]:
    """Seed by seed, so that a comparison that is broken off has compared alike."""
    for seed in range(seeds):
        for split in bench.splits():
            names = [fold.name for fold in bench.folds(split, seed)]
            for each in arms:
                for name in names:
                    yield Cell(bench.fingerprint, each.name, split, name, seed)


def run(bench: Bench, cell: Cell) -> Finished:
    """Fit and judge. The rows of the fold are the same whatever the model reads."""
    chosen = arm(cell.arm)
    rows = bench.rows(chosen.view)
    split = next(fold.split for fold in bench.folds(cell.split, cell.seed) if fold.name == cell.fold)
    labels = scramble_labels(rows.labels, rows.groups, seed=cell.seed) if chosen.control else rows.labels
    start = time.process_time()
    model = fit_on_split(chosen.make, rows.features, labels, rows.groups, split, seed=cell.seed)
    fit = time.process_time()
    scores, spread = model.predict(rows.features[split.test])
    scored, truth = time.process_time(), labels[split.test]
    found = judge_tasks(scores, truth, rows.groups[split.test])
    return Finished(
        cell,
        *(len(split.train), len(split.test), round(fit - start, 3), round(scored - fit, 4)),
        interval_80=round(coverage(scores, spread, truth, NORMAL_80), 6),
        tasks={bench.task_names[group]: _told(asdict(figures)) for group, figures in found.items()},
    )


def run_all(bench: Bench, data: str, least_rows: int, work: Sequence[Cell], jobs: int) -> Iterator[Finished]:
    """Each cell as it comes; in this process, or in several that read the rows themselves."""
    if jobs == 1:
        yield from (run(bench, cell) for cell in work)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), _prepare, (data, least_rows)) as pool:
        for future in as_completed([pool.submit(_run, cell) for cell in work]):
            yield future.result()


_BENCHES: Final[list[Bench]] = []  # of a process of the pool: the one that it reads at its start


def _prepare(data: str, least_rows: int) -> None:
    _BENCHES[:] = [load(data, least_rows)]


def _run(cell: Cell) -> Finished:
    return run(_BENCHES[0], cell)


def _told(figures: Mapping[str, float]) -> Figures:
    """JSON knows no NaN."""
    return {name: None if np.isnan(value) else round(float(value), 6) for name, value in figures.items()}
