"""Makes what comes along: bases of the measurements that do, or of others that take their place."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from db.bundled.load_bundled import PREFIX, Shipped, ShippedBase, read_list, rows_in
from db.dataset.export import export
from db.dataset.import_dataset import import_dataset
from db.dataset.snapshots import take_snapshot
from db.migrate import upgrade
from db.repositories.cost_models import CostModels
from db.repositories.snapshot_rows import Selection
from db.repositories.targets import Targets
from db.session import Database
from db.tables import Snapshot
from mallorn.core.errors import NotFound
from mallorn.core.targets import parse_target
from research.pretraining.from_database import training_data_of
from research.pretraining.pretrain import PretrainedBase, pretrain

DIGITS: Final = 12  # of the digest, in the snapshot's name


def ship(
    sources: Sequence[Path], models: Sequence[str], folder: Path, scratch: Path
) -> Iterator[PretrainedBase]:
    """The bases that are worth it, as they are written. Raises NotFound without any measurements."""
    given = list(sources) or [rows_in(folder)]
    database = Database(f"sqlite:///{scratch / 'mallorn.db'}")
    upgrade(database.url)
    try:
        for directory in given:
            import_dataset(database, directory)
        snapshot = _snapshot(database)
        if sources:
            _replace_rows(database, snapshot, folder, scratch)
        kept = list(_fitted(database, snapshot, models))
        _write(database, snapshot, kept, folder)
        yield from kept
    finally:
        database.dispose()


def _snapshot(database: Database) -> Snapshot:
    """Named by its rows, so that a database knows which ones came along."""
    found = take_snapshot(database, None, Selection())
    if not found.rows:
        raise NotFound(
            "there are no measurements to ship", hint="mallorn dataset export DIR   (then --from DIR)"
        )
    return take_snapshot(database, f"{PREFIX}{found.digest[:DIGITS]}", Selection())


def _replace_rows(database: Database, snapshot: Snapshot, folder: Path, scratch: Path) -> None:
    export(database, snapshot, scratch / "rows")
    shutil.rmtree(rows_in(folder), ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(scratch / "rows", rows_in(folder))


def _fitted(database: Database, snapshot: Snapshot, models: Sequence[str]) -> Iterator[PretrainedBase]:
    """Each target has its own. What is no better than chance, or was never judged on tasks that it had not
    seen, stays at home."""
    data = training_data_of(database, snapshot.name, Selection())
    for model in models:
        fitted = pretrain(database, data, model)
        yield from (base for base in fitted if base.active and base.metrics.split != "within-task")


def write_list(folder: Path, shipped: Shipped) -> None:
    """Sorted and indented, so that a new version shows what has changed."""
    bases = sorted(shipped.bases, key=lambda base: base.file)
    told = shipped.model_copy(update={"bases": bases})
    (folder / "bases.json").write_text(told.model_dump_json(indent=1) + "\n")


def _write(database: Database, snapshot: Snapshot, kept: Sequence[PretrainedBase], folder: Path) -> None:
    before = read_list(folder)
    for base in before.bases if before else ():
        (folder / base.file).unlink(missing_ok=True)
    (folder / "bases").mkdir(parents=True, exist_ok=True)
    listed = [_written(database, base, folder) for base in kept]
    write_list(folder, Shipped(snapshot=snapshot.name, bases=listed))


def _written(database: Database, base: PretrainedBase, folder: Path) -> ShippedBase:
    assert base.name is not None
    target = parse_target(base.target)
    with database.transaction() as session:
        target_id = Targets(session).ensure(target).id
        row = CostModels(session).latest(base.name.family, target_id, base.name.name)
    assert row is not None
    file = f"bases/{base.op}.{target.key}.{base.name.name}"
    (folder / file).write_bytes(row.blob)
    facts = base.name.family, base.target, base.name.name, base.rows, row.metrics
    return ShippedBase(
        **dict(zip(("family", "target", "name", "rows", "metrics"), facts, strict=True)), file=file
    )
