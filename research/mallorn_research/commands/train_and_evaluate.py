"""Commands that pretrain and evaluate cost models, and the reading of training data."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from mallorn.cli.dataset_options import (
    DatabaseOption,
    DatasetPlace,
    OpOption,
    RowFilter,
    SnapshotOption,
    TargetOption,
    dataset,
    to_selection,
)
from mallorn.cli.terminal.job_options import accepted_names_text
from mallorn.cli.terminal.output import JsonOption, print_json, print_note, stdout, table
from mallorn.cli.terminal.progress_bars import bar
from mallorn.core.errors import InvalidRequest
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import check_name, resolve
from mallorn.core.settings import Settings
from mallorn.core.targets import parse_target
from mallorn.wording.format_values import Column

if TYPE_CHECKING:
    from mallorn.db.dataset.snapshots import Progress
    from mallorn.db.session import Database
    from mallorn_research.pretraining.pretrain import PretrainedBase
    from mallorn_research.pretraining.training_data import Lowering, TrainingData


class Taught(NamedTuple):
    """Training data, and the compiler that some sets of features (views) need."""

    data: "TrainingData"
    lowering: "Lowering | None"


@contextmanager
def open_training_data(
    data: Path | None, url: str | None, snapshot: str | None, target: str | None, op: str | None
) -> Iterator[Taught]:
    """Yield training data from a Parquet file, an export's folder or a data directory."""
    if data is not None and is_parquet(data):
        if url or snapshot or target or op:
            raise InvalidRequest(
                f"--database, --snapshot, --target and --op are for databases; {data} is read as a whole",
                hint="mallorn dataset export DIR --op OP   (then --data DIR)",
            )
        yield Taught(read_parquet(data), None)
        return
    with dataset(data, url) as database, open_lowering(database) as lowering:
        yield Taught(read_database_measurements(database, snapshot, target, op), lowering)


@contextmanager
def open_lowering(database: "Database") -> Iterator["Lowering"]:
    """Yield a compiler for a database's programs; its process starts when first used."""
    from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
    from mallorn.workers.process.worker_runtime import MAX_CALLS
    from mallorn.workers.round.feature_lookup import FeatureLookup
    from mallorn.workers.round.train_cost_model import MOST_NEW
    from mallorn_research.pretraining.training_data import Lowering

    with TemporaryDirectory(prefix="mallorn-") as folder:
        room, memory_bytes = Path(folder), Settings().child_memory_bytes
        with CandidateCompiler(memory_bytes=memory_bytes, max_calls=MAX_CALLS, room=room) as compiler:
            yield Lowering(FeatureLookup(database, compiler), MOST_NEW)


def read_database_measurements(
    database: "Database", snapshot: str | None, target: str | None, op: str | None
) -> "TrainingData":
    """Return a database's measurements: a snapshot's, or those that match the filters."""
    from mallorn_research.pretraining.read_measurements import read_measurements

    if snapshot is not None and (target or op):
        raise InvalidRequest("a snapshot has its own filter", hint=f"--snapshot {snapshot}   (alone)")
    selection = to_selection(database, RowFilter(target, op))
    with bar("reading") as progress:
        return read_measurements(database, snapshot, selection, progress)


def read_parquet(path: Path) -> "TrainingData":
    """Read measurements from Parquet files, with a progress bar."""
    from mallorn_research.pretraining.read_measurements import read_training_data

    with bar(f"reading {path.name}") as progress:
        return read_training_data(path, progress)


def is_parquet(path: Path) -> bool:
    """Return whether a path names a Parquet file, or is a directory with such files."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def note_skipped(training_data: "TrainingData") -> None:
    """Print how many rows were skipped as useless for training, by cause."""
    if training_data.skipped:
        words = ", ".join(f"{count:,} {cause}" for cause, count in sorted(training_data.skipped.items()))
        print_note(f"left out, as nothing can be learned from them: {words}")


COLUMNS: "Final[Sequence[Column[PretrainedBase]]]" = (
    Column("MODEL", lambda base: str(base.name)),
    Column("ACTIVE", lambda base: "yes" if base.active else "no"),
    Column("TASKS", lambda base: base.metrics.tasks),
    Column("ROWS", lambda base: base.rows),
    Column("PAIRS IN ORDER", lambda base: base.metrics.pairwise),
    Column("PEAK AT 1", lambda base: base.metrics.peak_1),
    Column("JUDGED", lambda base: base.metrics.split),
    Column("TARGET", lambda base: base.target, cut=True),
)


def pretrain(
    model: Annotated[
        str, typer.Argument(metavar="[MODEL]", help=f"Cost model: {accepted_names_text('cost_model')}.")
    ] = JobOptions().cost_model,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="PATH", help="Learn from a Parquet file or an export's directory instead."
        ),
    ] = None,
    snapshot: SnapshotOption = None,
    target: TargetOption = None,
    op: OpOption = None,
    home: Annotated[
        str | None,
        typer.Option("--for", metavar="TARGET", help="Bases for this target, from the rows of all targets."),
    ] = None,
    foreign: Annotated[
        bool,
        typer.Option("--foreign", help="Learn from TenSet's imported records, too; tlp and mtl-tlp can."),
    ] = False,
    choose: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Learn from only this share of the rows, chosen as most informative (TCL)."
        ),
    ] = None,
    *,
    place: DatasetPlace,
    as_json: JsonOption = False,
) -> None:
    """Fit a base model per operator and target; it proposes first rounds, and other models build on it."""
    check_name("cost_model", model)
    target_of = None if home is None else parse_target(home)
    if source is not None and (snapshot or target or op):
        message = f"--snapshot, --target and --op select from a database; {source} is used as a whole"
        raise InvalidRequest(message, hint="mallorn dataset export DIR --op OP   (then --from DIR)")
    if foreign and home is None:
        message = "records of other tuners do not name the number of cores: name the target with --for"
        raise InvalidRequest(message, hint=f"mallorn costmodels pretrain {model} --foreign --for TARGET")
    if choose is not None and not 0 < choose <= 1:
        message = f"a share of the rows must be above 0 and at most 1, not {choose:g}"
        raise InvalidRequest(message, hint=f"mallorn costmodels pretrain {model} --choose 0.25")
    from mallorn_research.pretraining.pretrain import WORTH_PAIRS, is_trained_on_foreign_only
    from mallorn_research.pretraining.pretrain import pretrain as fit_bases

    with dataset(*place, create=source is not None) as database, open_lowering(database) as lowering:
        if source is None:
            examples = read_database_measurements(database, snapshot, target, op)
        else:
            examples = read_parquet(source)
        if foreign:
            from mallorn_research.pretraining.from_tuner_logs import add_tuner_log_records

            examples = add_tuner_log_records(database, examples, model, op)
        note_skipped(examples)
        with bar("fitting") as progress:
            bases = list(fit_bases(database, examples, model, progress, lowering, target_of, choose))
    if too_small := [f"{base.op} ({base.rows})" for base in bases if base.name is None]:
        print_note(f"too few measurements to learn from: {', '.join(too_small)}")
    stored_bases = [base for base in bases if base.name is not None]
    if not stored_bases:
        message = f"none of {len(bases)} operators has enough measurements to train on"
        raise InvalidRequest(message, hint="mallorn dataset stats   (then tune, or import, some more)")
    if as_json:
        print_json(
            [
                {"model": str(base.name), "op": base.op, "target": base.target, "rows": base.rows}
                | base.metrics.model_dump(exclude_unset=True)
                | {"active": base.active, "snapshot": examples.snapshot}
                for base in stored_bases
            ]
        )
    else:
        stdout().print(table(stored_bases, COLUMNS))
    for base in stored_bases:
        if base.active:
            continue
        share, split = base.metrics.pairwise, base.metrics.split
        accuracy = "could not be judged" if share is None else f"orders {share:.0%} of pairs right"
        cause = f"it {accuracy} ({split}), 50% is chance and {WORTH_PAIRS:.0%} are asked for"
        if is_trained_on_foreign_only(base.metrics):
            cause = f"it {accuracy} ({split}), and all of them are other tuners'"
        print_note(
            f"{base.name} is stored and not active: {cause}; use it nevertheless with   "
            f"mallorn costmodels activate {base.name} --target '{base.target}'"
        )
    if any(base.active for base in bases):
        print_note("new tasks' first rounds use the active ones from now on, whatever the job's cost model")


SPLITS: Final = ("within-task", "by-task", "by-network", "by-target", "by-host")
CONTROL: Final = "scrambled"


@dataclass(frozen=True, slots=True)
class SeedFigures:
    """Mean, standard deviation and values by seed of a metric; None where undefined."""

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
        list[str],
        typer.Argument(metavar="MODEL...", help=f"Cost models: {accepted_names_text('cost_model')}."),
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
    with open_training_data(data, database, snapshot, target, op) as taught:
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
    """Yield each model's metrics; with `control`, also when fitted to shuffled labels."""
    import numpy as np

    from mallorn_research.pretraining.evaluate_splits import compute_test_scores
    from mallorn_research.pretraining.training_data import rows_for

    arms = [(name, False) for name in models] + [(name, True) for name in models if control]
    for number, (name, is_control) in enumerate(arms):
        progress(number, len(arms))
        make = resolve("cost_model", name)
        rows = rows_for(taught.data.tasks, make.view, taught.lowering)
        runs = compute_test_scores(make, rows, split, seeds, taught.data.networks, is_control)
        summary = {
            figure: SeedFigures(
                mean=_none_if_nan(np.mean([run[figure] for run in runs])),
                spread=_none_if_nan(np.std([run[figure] for run in runs])),
                seeds=[_none_if_nan(run[figure]) for run in runs],
            )
            for figure in runs[0]
        }
        yield f"{name}, {CONTROL}" if is_control else name, summary


def _none_if_nan(value: Any) -> float | None:
    return None if value != value else float(value)


def _cell(figures: Figures, name: str) -> str:
    figure = figures[name]
    if figure.mean is None:
        return "-"
    if name in ("rows", "tied"):
        return f"{figure.mean:,.0f}"
    return f"{figure.mean:.3f} ± {figure.spread:.3f}"
