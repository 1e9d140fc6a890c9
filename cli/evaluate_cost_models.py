"""The command that evaluates cost models on measurements that they were not fitted to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.dataset_options import DatabaseOption, OpOption, SnapshotOption, TargetOption
from cli.run_service_part import installed
from cli.terminal.job_options import known
from cli.terminal.output import JsonOption, print_json, print_note, stdout, table
from cli.terminal.progress_bars import bar
from cli.training_data import Taught, note_skipped, training_data_from
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import check_name, resolve
from mallorn.wording.format_values import Column

if TYPE_CHECKING:
    from db.dataset.snapshots import Progress

SPLITS: Final = ("within-task", "by-task", "by-network", "by-target", "by-host")
CONTROL: Final = "scrambled"


@dataclass(frozen=True, slots=True)
class SeedFigures:
    """A figure's mean, standard deviation and value for each seed; None if it is undefined."""

    mean: float | None
    spread: float | None
    seeds: list[float | None]


Figures = dict[str, SeedFigures]
WORDS: Final = {
    "pairwise": "pairs in order",
    "pairwise_task": "pairs in order, mean of tasks",
    "top_pairwise": "pairs in order, fastest tenth",
    "top_recall": "top-tenth recall",
    "tied": "pairs left out, tied",
    "spearman": "Spearman",
    "recall": "top-8 recall",
    "peak_1": "peak score at 1",
    "peak_5": "peak score at 5",
    "network_1": "network score at 1",
    "network_5": "network score at 5",
    "rmse": "RMSE",
    "r2": "R2",
    "calibration": "labels within 2 spreads",
    "interval_80": "labels in 80 % intervals",
    "rows": "rows judged",
}


def evaluate(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help=f"Cost models: {known('cost_model')}.")
    ],
    split: Annotated[str, typer.Option(help=f"What is held out: {', '.join(SPLITS)}.")] = "by-task",
    data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A Parquet file, an export's directory, or a data directory."),
    ] = None,
    snapshot: SnapshotOption = None,
    target: TargetOption = None,
    op: OpOption = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Number of fits of each model.")] = 3,
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Also evaluate models that learned shuffled labels, which shows chance."
        ),
    ] = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit cost models on a part of the measurements and evaluate them on the rest."""
    for model in models:
        check_name("cost_model", model)
    if split not in SPLITS:
        raise InvalidRequest(f"there is no split {split!r}", hint=f"--split {'|'.join(SPLITS)}")
    with installed("worker"), training_data_from(data, database, snapshot, target, op) as taught:
        training_data = taught.data
        note_skipped(training_data)
        with bar("fitting") as progress:
            figures_by_arm = dict(_figures_by_arm(models, taught, split, seeds, control, progress))
    tasks = len({task.workload for task in training_data.tasks})
    if as_json:
        frozen = {"snapshot": training_data.snapshot, "measurements": training_data.rows}
        print_json({"split": split, "seeds": seeds, **frozen, "tasks": tasks, "figures": figures_by_arm})
        return
    first = next(iter(figures_by_arm.values()))
    arms = [Column[str](arm.upper(), partial(_cell, figures)) for arm, figures in figures_by_arm.items()]
    columns = [Column[str]("FIGURE", WORDS.__getitem__), *arms]
    stdout().print(table([name for name in WORDS if name in first], columns))
    rows = f"{training_data.rows:,} measurements of {tasks} tasks, snapshot {training_data.snapshot}"
    print_note(f"{split}, {rows}; means of {seeds} seeds ± standard deviations")


def _figures_by_arm(
    models: Sequence[str], taught: Taught, split: str, seeds: int, control: bool, progress: "Progress"
) -> Iterator[tuple[str, Figures]]:
    """Yield the figures of each model and, if `control`, of the model fitted to scrambled labels."""
    import numpy as np

    from research.pretraining.evaluate_splits import figures
    from research.pretraining.feature_rows import rows_for

    arms = [(name, False) for name in models] + [(name, True) for name in models if control]
    for number, (name, is_control) in enumerate(arms):
        progress(number, len(arms))
        make = resolve("cost_model", name)
        rows = rows_for(taught.data.tasks, make.view, taught.lowering)
        runs = figures(make, rows, split, seeds, taught.data.networks, is_control)
        summary = {
            figure: SeedFigures(
                mean=_number(np.mean([run[figure] for run in runs])),
                spread=_number(np.std([run[figure] for run in runs])),
                seeds=[_number(run[figure]) for run in runs],
            )
            for figure in runs[0]
        }
        yield f"{name}, {CONTROL}" if is_control else name, summary


def _number(value: Any) -> float | None:
    """Return None for NaN, which JSON does not have."""
    return None if value != value else float(value)


def _cell(figures: Figures, name: str) -> str:
    figure = figures[name]
    if figure.mean is None:
        return "-"
    if name in ("rows", "tied"):
        return f"{figure.mean:,.0f}"
    return f"{figure.mean:.3f} ± {figure.spread:.3f}"
