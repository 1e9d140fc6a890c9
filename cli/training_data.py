"""Reads a command's training data from a database, a snapshot or Parquet files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cli.dataset_options import RowFilter, dataset, selected
from cli.terminal.output import print_note
from cli.terminal.progress_bars import bar
from mallorn.core.errors import InvalidRequest
from mallorn.core.settings import Settings

if TYPE_CHECKING:
    from db.session import Database
    from research.pretraining.feature_rows import Lowering
    from research.pretraining.training_data import TrainingData


class Taught(NamedTuple):
    """Training data, and the compiler for feature views that need one."""

    data: "TrainingData"
    lowering: "Lowering | None"


@contextmanager
def training_data_from(
    data: Path | None, url: str | None, snapshot: str | None, target: str | None, op: str | None
) -> Iterator[Taught]:
    """Yield training data. `data` is a Parquet file, an export's directory or a data directory."""
    if data is not None and is_parquet(data):
        if url or snapshot or target or op:
            raise InvalidRequest(
                f"{data} is taken whole; --database, --snapshot, --target and --op are about a database",
                hint="mallorn dataset export DIR --op OP   (then --data DIR)",
            )
        yield Taught(read_parquet(data), None)
        return
    with dataset(data, url) as database, lowering_in(database) as lowering:
        yield Taught(training_data_in(database, snapshot, target, op), lowering)


@contextmanager
def lowering_in(database: "Database") -> Iterator["Lowering"]:
    """Yield a compiler for a database's programs; its process starts with the first call."""
    from research.pretraining.feature_rows import Lowering
    from workers.interfaces.candidate_compiler import CandidateCompiler
    from workers.process.worker_runtime import MAX_CALLS
    from workers.round.feature_lookup import FeatureLookup
    from workers.round.train_cost_model import MOST_NEW

    memory_bytes = Settings().child_memory_bytes
    compiler = CandidateCompiler(memory_bytes=memory_bytes, max_calls=MAX_CALLS, name="compiler")
    try:
        yield Lowering(FeatureLookup(database, compiler), MOST_NEW)
    finally:
        compiler.kill()


def training_data_in(
    database: "Database", snapshot: str | None, target: str | None, op: str | None
) -> "TrainingData":
    """Return measurements of a database: those of a snapshot, or those that match the filters."""
    from research.pretraining.from_database import training_data_of

    if snapshot is not None and (target or op):
        raise InvalidRequest("a snapshot has its own filter", hint=f"--snapshot {snapshot}   (alone)")
    selection = selected(database, RowFilter(target, op))
    with bar("reading") as progress:
        return training_data_of(database, snapshot, selection, progress)


def read_parquet(path: Path) -> "TrainingData":
    """Read measurements from Parquet files, with a progress bar."""
    from research.pretraining.from_parquet import read_training_data

    with bar(f"reading {path.name}") as progress:
        return read_training_data(path, progress)


def is_parquet(path: Path) -> bool:
    """Return whether a path, which need not exist, is a Parquet file or a directory with some."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def note_skipped(training_data: "TrainingData") -> None:
    """Print how many rows were skipped, by cause, if any were."""
    if training_data.skipped:
        words = ", ".join(f"{count:,} {cause}" for cause, count in sorted(training_data.skipped.items()))
        print_note(f"left out, as nothing can be learned from them: {words}")
