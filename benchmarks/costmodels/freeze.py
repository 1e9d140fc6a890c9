"""Freezes the rows that cost models are compared on, before any model sees them.

python -m benchmarks.costmodels.freeze DATA_DIR OUT [--snapshot NAME] [--view statements ...]

OUT is what `mallorn dataset export` writes of the snapshot (taken now unless it exists), with `networks.json`
(which network calls which workload how often) and a Parquet file for each view that takes a compiler. What
was lowered is kept in DATA_DIR, so that a second start goes on; OUT alone is enough to compare.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.costmodels.networks import write_networks
from benchmarks.costmodels.view_file import path_of, write_view
from mallorn.cli.dataset_options import dataset
from mallorn.core.errors import Conflict, MallornError
from mallorn.costmodels.views import STATEMENTS, VIEWS
from mallorn.db.dataset.export_files import open_export
from mallorn.db.dataset.snapshots import check_snapshot, export, take_snapshot
from mallorn.db.repositories.snapshots import Selection, Snapshots
from mallorn.db.repositories.workloads import Networks
from mallorn.db.session import Database
from mallorn.db.tables import Snapshot
from mallorn.workers.round.feature_lookup import LOWERED, FeatureRows
from mallorn_research.commands.train_and_evaluate import open_lowering
from mallorn_research.pretraining.read_measurements import read_measurements
from mallorn_research.pretraining.training_data import Lowering, TaskData, TrainingData

NAME: Final = "costmodels"
ALL: Final = 1 << 30


def main() -> None:
    """Freeze, export, lower."""
    options = _arguments()
    try:
        with dataset(options.data, None) as database, open_lowering(database) as lowering:
            freeze(database, replace(lowering, most_new=ALL), options.out, options.snapshot, options.view)
    except MallornError as error:
        sys.exit(f"{error.message}\n{error.hint}")


def freeze(database: Database, lowering: Lowering, out: Path, name: str, views: Sequence[str]) -> None:
    """What is there already is kept. Raises Conflict where it is of other rows."""
    snapshot = frozen(database, name)
    if not out.exists():
        export(database, snapshot, out)
    _check(out, snapshot)
    with database.session() as session:
        write_networks(out, Networks(session).call_counts_by_network())
    data = read_measurements(database, snapshot.name, Selection())
    print(f"{snapshot.rows} rows of {len(data.tasks)} tasks, snapshot {name}, digest {snapshot.digest}")
    for view in views:
        _store(out, view, data, lowering)


def frozen(database: Database, name: str) -> Snapshot:
    """The snapshot of this name, taken now where there is none. Raises Conflict if its rows have changed."""
    with database.session() as session:
        known = Snapshots(session).find(name)
    if known is None:
        return take_snapshot(database, name, Selection())
    if not check_snapshot(database, known):
        raise Conflict(f"the rows of {name} are not those that were frozen", hint="restore a backup")
    return known


def _check(out: Path, snapshot: Snapshot) -> None:
    found = open_export(out).snapshot
    if found["digest"] != snapshot.digest:
        raise Conflict(f"{out} holds the rows {found['name']}, not {snapshot.name}", hint=f"ls {out}")


def _store(out: Path, view: str, data: TrainingData, lowering: Lowering) -> None:
    started, path = time.monotonic(), path_of(out, view)
    written = write_view(path, VIEWS[view], data.snapshot, _seen(view, data, lowering))
    seconds, size = time.monotonic() - started, path.stat().st_size
    print(f"{view}: {written} of {data.rows} rows, {size / 1e6:.1f} MB, {seconds:.0f} s", flush=True)


def _seen(view: str, data: TrainingData, lowering: Lowering) -> Iterator[tuple[TaskData, FeatureRows]]:
    for number, task in enumerate(data.tasks, 1):
        found = lowering.compute_features(task, view)
        print(f"{view}: {number} of {len(data.tasks)} tasks, {int(found.known.sum())} rows", flush=True)
        yield task, found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--snapshot", default=NAME, metavar="NAME")
    parser.add_argument("--view", nargs="*", choices=sorted(LOWERED), default=[STATEMENTS.name])
    return parser.parse_args()


if __name__ == "__main__":
    main()
