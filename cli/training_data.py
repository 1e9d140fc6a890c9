"""Which measurements a command learns from: a database's, a snapshot's, or those of Parquet files."""

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
    """What there is to learn from, and what fills the views that need a compiler."""

    data: "TrainingData"
    lowering: "Lowering | None"


@contextmanager
def training_data_from(
    data: Path | None, url: str | None, snapshot: str | None, target: str | None, op: str | None
) -> Iterator[Taught]:
    """What is to be learned from. `data` is a Parquet file, an export's directory or a data directory."""
    if data is not None and is_parquet(data):
        if url or snapshot or target or op:
            raise InvalidRequest(
                f"{data} is taken whole; --database, --snapshot, --target and --op are about a database",
                hint="mallorn dataset export DIR --op OP   (then --data DIR)",
            )
        yield Taught(read_parquet(data), None)
        return
    with dataset(data, url) as opened, lowering_in(opened) as lowering:
        yield Taught(training_data_in(opened, snapshot, target, op), lowering)


@contextmanager
def lowering_in(database: "Database") -> Iterator["Lowering"]:
    """A compiler for a database's programs; its process starts when it is first asked."""
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
    """The measurements of a database: a snapshot's, or what is selected."""
    from research.pretraining.from_database import training_data_of

    if snapshot is not None and (target or op):
        raise InvalidRequest("a snapshot has its own filter", hint=f"--snapshot {snapshot}   (alone)")
    selection = selected(database, RowFilter(target, op))
    with bar("reading") as progress:
        return training_data_of(database, snapshot, selection, progress)


def read_parquet(path: Path) -> "TrainingData":
    """The measurements of Parquet files, with a bar."""
    from research.pretraining.from_parquet import read_training_data

    with bar(f"reading {path.name}") as progress:
        return read_training_data(path, progress)


def is_parquet(path: Path) -> bool:
    """Whether it is meant to be read as Parquet; what is not there is if its name says so."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def note_skipped(training_data: "TrainingData") -> None:
    """Say which rows were left out, if any were."""
    if training_data.skipped:
        words = ", ".join(f"{count:,} {wrong}" for wrong, count in sorted(training_data.skipped.items()))
        print_note(f"left out, as nothing can be learned from them: {words}")
