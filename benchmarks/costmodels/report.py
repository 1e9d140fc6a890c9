"""What finished runs come to: a table a split, and every model beside MetaSchedule's, task by task."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.costmodels.arms import CONTROL, METASCHEDULE
from benchmarks.costmodels.cells import Finished

FIGURES: Final = {
    "pairwise": "pairs",
    "top_pairwise": "pairs, top tenth",
    "top_recall": "top-tenth recall",
    "spearman": "Spearman",
    "peak_1": "peak@1",
    "peak_5": "peak@5",
    "rmse": "RMSE (log)",
    "speed_rmse": "RMSE (speed)",
}
LESS_IS_MORE: Final = ("rmse", "speed_rmse")
#: Within task, on other data: TenSet's XGB (one CPU, 500 tasks' files) and Pruner's PAM (one GPU, one task).
PAPERS: Final = {
    "(TenSet XGB)": {"pairwise": 0.846, "peak_1": 0.829, "peak_5": 0.905, "speed_rmse": 0.081},
    "(Pruner PAM)": {"pairwise": 0.904, "peak_1": 0.906, "peak_5": 0.958},
}
UNSEEN: Final = "by-task"
Report = dict[str, dict[str, Any]]  # by split, then by arm


class Place(NamedTuple):
    """A task that was held out."""

    seed: int
    fold: str
    task: str


def summarise(finished: Iterable[Finished]) -> Report:
    """By split and model: figures as means over tasks, their spread over seeds, the difference to the bar."""
    runs = defaultdict[str, dict[str, list[Finished]]](lambda: defaultdict(list))
    for each in finished:
        runs[each.cell.split][each.cell.arm].append(each)
    return {split: _split(arms) for split, arms in runs.items()}


def _split(arms: Mapping[str, Sequence[Finished]]) -> dict[str, Any]:
    bar = arms.get(METASCHEDULE, ())
    return {
        name: {
            "figures": {figure: _figure(_values(runs, figure)) for figure in FIGURES},
            "beside_metaschedule": {
                figure: _beside(_values(runs, figure), _values(bar, figure), figure) for figure in FIGURES
            }
            if bar and name != METASCHEDULE
            else {},
            "tasks": len({task for run in runs for task in run.tasks}),
            "runs": len(runs),
            "interval_80": float(np.mean([run.interval_80 for run in runs])),
            "fit_sec": float(np.mean([run.fit_sec for run in runs])),
            "score_ms_a_thousand": 1e6 * sum(run.score_sec for run in runs) / sum(run.judged for run in runs),
        }
        for name, runs in arms.items()
    }


def _values(runs: Iterable[Finished], figure: str) -> dict[Place, float]:
    return {
        Place(run.cell.seed, run.cell.fold, task): value
        for run in runs
        for task, figures in run.tasks.items()
        if (value := figures[figure]) is not None
    }


def _figure(values: Mapping[Place, float]) -> dict[str, Any]:
    """The mean over tasks of each seed, their mean, and how far they are apart."""
    by_seed = defaultdict[int, list[float]](list)
    for place, value in values.items():
        by_seed[place.seed].append(value)
    seeds = [float(np.mean(by_seed[seed])) for seed in sorted(by_seed)]
    return {"mean": _mean(seeds), "spread": float(np.std(seeds)) if seeds else None, "seeds": seeds}


def _beside(own: Mapping[Place, float], bar: Mapping[Place, float], figure: str) -> dict[str, Any]:
    """The difference on the same tasks, its standard error over tasks, and how many are better and worse."""
    by_task = defaultdict[str, list[float]](list)
    for place in own.keys() & bar.keys():
        by_task[place.task].append(own[place] - bar[place])
    gaps = np.array([np.mean(by_task[task]) for task in sorted(by_task)])
    better = -gaps if figure in LESS_IS_MORE else gaps
    return {
        "difference": _mean(gaps.tolist()),
        "standard_error": float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else None,
        "better": int((better > 0).sum()),
        "worse": int((better < 0).sum()),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def lines(report: Report) -> Iterator[str]:
    """The report as Markdown."""
    for split, arms in report.items():
        yield from (f"## {split}", "", *_table(arms, PAPERS if split == "within-task" else {}), "")
        if METASCHEDULE in arms:
            yield from (f"{split}, less MetaSchedule's model on the same tasks:", "", *_gaps(arms), "")


def _table(arms: Mapping[str, Any], papers: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    yield "| | " + " | ".join(FIGURES.values()) + " | 80 % | fit s | ms/1,000 | tasks |"
    yield "|---" * (len(FIGURES) + 5) + "|"
    for name, told in arms.items():
        cells = [_cell(told["figures"][figure]) for figure in FIGURES]
        inside = "-" if name == METASCHEDULE else f"{told['interval_80']:.2f}"
        took = f"{told['fit_sec']:.2f} | {told['score_ms_a_thousand']:.1f} | {told['tasks']}"
        yield f"| `{name}` | {' | '.join(cells)} | {inside} | {took} |"
    for name, known in papers.items():
        shown = [f"{known[figure]:.3f}" if figure in known else "" for figure in FIGURES]
        yield f"| {name} | {' | '.join(shown)} | | | | |"


def _cell(figure: Mapping[str, Any]) -> str:
    if figure["mean"] is None:
        return "-"
    spread = f" ± {figure['spread']:.3f}" if len(figure["seeds"]) > 1 else ""
    return f"{figure['mean']:.3f}{spread}"


def _gaps(arms: Mapping[str, Any]) -> Iterator[str]:
    yield "| | " + " | ".join(FIGURES.values()) + " |"
    yield "|---" * (len(FIGURES) + 1) + "|"
    for name, told in arms.items():
        if name != METASCHEDULE:
            yield f"| `{name}` | {' | '.join(_gap(told['beside_metaschedule'][f]) for f in FIGURES)} |"


def _gap(beside: Mapping[str, Any]) -> str:
    """How far from the bar, and the tasks on which it is better and worse."""
    if beside["difference"] is None:
        return "-"
    error = beside["standard_error"]
    spread = "" if error is None else f" ± {error:.3f}"
    return f"{beside['difference']:+.3f}{spread} ({beside['better']}:{beside['worse']})"


def headline(report: Report) -> str:
    """The best model by task beside the bar."""
    arms = {name: told for name, told in report.get(UNSEEN, {}).items() if name != CONTROL}
    ours = {n: told["figures"]["pairwise"]["mean"] for n, told in arms.items() if n != METASCHEDULE}
    known = {name: value for name, value in ours.items() if value is not None}
    if not known:
        return "no model of ours was judged by task"
    best = max(known, key=lambda name: known[name])
    words = f"pairs in order of tasks never seen, mean of tasks: {best} {known[best]:.3f}"
    if METASCHEDULE not in arms:
        return words
    return f"{words}, MetaSchedule's model {arms[METASCHEDULE]['figures']['pairwise']['mean']:.3f}"
