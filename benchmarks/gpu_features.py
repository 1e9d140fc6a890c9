"""Which features order CUDA candidates: python -m benchmarks.gpu_features [--json FILE] [--cache FILE]

The candidates are those of docs/results/gpu/h200_part1.jsonl, with their times on an H200. Two
tests: each task's candidates are ordered by a model of the other tasks (`other tasks`), and by a
model that also saw eight random ones of the task (`and eight rows`, mean of several draws). The
figure is Spearman's rank correlation within the task; `first` is the time of the candidate that
the model likes best over the best time. The headline is the mean correlation of the default
model of CUDA targets, `kernel-time`, over that of `xgboost` on `decisions`, with other tasks alone.
Views that need nvcc take minutes; `--cache` keeps the features.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.s_tir.schedule import Trace

from benchmarks.gpu.programs import module_of
from benchmarks.gpu.tasks import BY_NAME
from benchmarks.hosts import describe_host
from mallorn.core.outcomes import Outcome
from mallorn.core.registry import resolve
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.costmodels.lightgbm_models import LightGBM
from mallorn.costmodels.xgboost_models import KernelTime, XGBoost
from mallorn.searchers.space import Candidate, Matrix, Sketch
from mallorn.workers.round.loaded_round import descriptors
from mallorn.workers.tvm.programs.parsed_program_cache import instructions, parse_module
from mallorn.workers.tvm.programs.program_blocks import blocks_of, find_main_block
from mallorn.workers.tvm.space.rebuild_schedule import map_choices_to_decisions, rebuild
from mallorn.workers.tvm.space.sketches import choices_of
from mallorn_research.costmodels.metrics import spearman
from mallorn_research.costmodels.ridge_on_code_counts import RidgeOnCodeCounts

RESULTS: Final = Path(__file__).resolve().parents[1] / "docs" / "results" / "gpu"
SEEN: Final = ("decisions", "statements", "kernels")
FEWEST: Final = 9  # timed candidates of a task whose order is judged
KNOWN: Final = 8  # rows of the judged task in the second test
DRAWS: Final = 10
Rows = dict[str, NDArray[np.float32]]  # by cell


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args()
    stored = json.loads((RESULTS / "h200_part1_candidates.json").read_text())
    lines = map(json.loads, (RESULTS / "h200_part1.jsonl").read_text().splitlines())
    times_us = {
        line["cell"]: line["us"] for line in lines if line["cell"] in stored["candidates"] and "us" in line
    }
    views = _features(stored, sorted(times_us), options.cache)
    cells = [cell for cell in sorted(times_us) if all(cell in rows for rows in views.values())]
    arms = [
        *((view, name, _maker(kind, view)) for view in SEEN for name, kind in MODELS.items()),
        ("kernels", "modelled time alone", KernelTime),
        ("kernels", "kernel-time", KernelTime),
    ]
    table = []
    for view, name, make in arms:
        matrix = np.stack([views[view][cell] for cell in cells])
        is_trained = name != "modelled time alone"
        row = {"view": view, "model": name} | _judge(make, matrix, cells, times_us, options.draws, is_trained)
        table.append(row)
        print(
            f"{view:10s} {name:20s}",
            *(f"{key} {value}" for key, value in row.items() if isinstance(value, float)),
        )
    means = {(row["view"], row["model"]): row["other tasks"] for row in table}
    raw = {
        "benchmark": "gpu_features",
        **describe_host(),
        "command": "python -m benchmarks.gpu_features --json docs/results/gpu/features.json",
        "rows": len(cells),
        "tasks judged": len({_task(cell) for cell in cells if _is_judged(cell, cells)}),
        "table": table,
        "headline": means["kernels", "kernel-time"] / means["decisions", "xgboost"],
    }
    if options.json:
        options.json.write_text(json.dumps(raw, indent=1) + "\n")


MODELS: Final[dict[str, type[CostModel]]] = {
    "xgboost": XGBoost,
    "lightgbm": LightGBM,
    "ridge": RidgeOnCodeCounts,
}


def _maker(kind: type[CostModel], view: str) -> Callable[[], CostModel]:
    """Return the class as a model of another view."""
    return type(kind.__name__, (kind,), {"view": view})


def _task(cell: str) -> str:
    return cell.partition("/")[0]


def _is_judged(cell: str, cells: list[str]) -> bool:
    return sum(_task(other) == _task(cell) for other in cells) >= FEWEST


def _features(stored: Any, cells: list[str], cache: Path | None) -> dict[str, Rows]:
    """Return features by view and cell."""
    if cache and cache.exists():
        kept = np.load(cache, allow_pickle=True)["kept"].item()
        return dict(kept["views"])
    views: dict[str, Rows] = {view: {} for view in SEEN}
    for cell in cells:
        key, decisions = stored["candidates"][cell]
        sketch = stored["sketches"][key]
        tir = tvm.ir.save_json(module_of(BY_NAME[_task(cell)]))
        schedule = rebuild(tir, stored["target"], sketch["trace"], decisions)
        if schedule is None:
            continue  # a later version of the space refuses it
        views["decisions"][cell] = _decisions(tir, key, sketch, decisions)
        for view in SEEN[1:]:
            describe = resolve("lowered_features", view)
            try:
                views[view][cell] = describe(tir, stored["target"], schedule)[0]
            except Exception as error:  # named, and the row is left out
                print(f"{cell}: no {view}: {error}")
    if cache:
        np.savez(cache, kept=np.array({"views": views}, dtype=object))
    return views


def _decisions(tir: str, key: str, stored: Any, decisions: list[int]) -> NDArray[np.float32]:
    insts = instructions(tir, stored["trace"])
    trace = Trace(insts, map_choices_to_decisions(insts, decisions))
    sketch = Sketch(key, stored["trace"], choices_of(tir, insts, trace, {}), stored["ordinal"])
    extents = find_main_block(blocks_of(parse_module(tir))).extents
    work = descriptors(2.0 * float(np.prod(extents)), extents)
    candidate = Candidate(key, tuple(decisions))
    return np.asarray(resolve("features", "decisions")().extract({key: sketch}, work, [candidate])[0])


def _judge(
    make: Callable[[], CostModel],
    matrix: Matrix,
    cells: list[str],
    times_us: dict[str, float],
    draws: int,
    is_trained: bool,
) -> dict[str, Any]:
    names = sorted({_task(cell) for cell in cells})
    groups = np.array([names.index(_task(cell)) for cell in cells], dtype=np.int64)
    us = np.array([times_us[cell] for cell in cells])
    truth = labels(us.tolist(), groups, [Outcome.OK] * len(cells))
    figures: dict[str, dict[str, float]] = {"other tasks": {}, "and eight rows": {}, "first": {}}
    for number, name in enumerate(names):
        own = np.flatnonzero(groups == number)
        if len(own) < FEWEST:
            continue
        scores = _scores(make, matrix, truth, groups, own, np.array([], dtype=np.int64), 0, is_trained)
        figures["other tasks"][name] = spearman(scores, truth[own], groups[own])
        figures["first"][name] = float(us[own][scores.argmax()] / us[own].min())
        drawn = []
        for seed in range(draws if len(own) > KNOWN + 3 else 0):
            known = np.random.default_rng(seed).choice(own, KNOWN, replace=False)
            left = np.setdiff1d(own, known)
            scores = _scores(make, matrix, truth, groups, left, known, seed, is_trained)
            drawn.append(spearman(scores, truth[left], groups[left]))
        if drawn:
            figures["and eight rows"][name] = fmean(drawn)
    rounded = {key: {task: round(value, 3) for task, value in by.items()} for key, by in figures.items()}
    return {
        "other tasks": round(fmean(figures["other tasks"].values()), 3),
        "and eight rows": round(fmean(figures["and eight rows"].values()), 3),
        "first": round(median(figures["first"].values()), 3),
        "low": round(_low(list(figures["other tasks"].values())), 3),
        "by task": rounded,
    }


def _scores(
    make: Callable[[], CostModel],
    matrix: Matrix,
    truth: NDArray[np.float32],
    groups: NDArray[np.int64],
    judged: NDArray[np.int64],
    known: NDArray[np.int64],
    seed: int,
    is_trained: bool,
) -> NDArray[np.float32]:
    model = make()
    if is_trained:
        train = np.union1d(np.flatnonzero(groups != groups[judged[0]]), known)
        model.fit(matrix[train], truth[train], groups[train], seed=seed)
    return model.predict(matrix[judged]).mean


def _low(values: list[float]) -> float:
    """Return the lower end of the 95 % bootstrap interval over tasks of the mean."""
    rng = np.random.default_rng(0)
    return float(np.quantile(rng.choice(values, (2000, len(values))).mean(axis=1), 0.025))


if __name__ == "__main__":
    main()
