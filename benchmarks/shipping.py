"""Make the bundled bases from the bundled measurements, or from ones that replace them."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mallorn.core.errors import NotFound
from mallorn.core.targets import parse_target
from mallorn.db.bundled.load_bundled import PREFIX, Shipped, ShippedBase, bundled_rows_path, read_bases_list
from mallorn.db.dataset.import_dataset import import_dataset
from mallorn.db.dataset.snapshots import export, take_snapshot
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.repositories.snapshots import Selection
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database
from mallorn.db.tables import Snapshot
from mallorn_research.pretraining.pretrain import PretrainedBase, pretrain
from mallorn_research.pretraining.read_measurements import read_measurements

DIGITS: Final = 12  # hexadecimal digits of the digest in the snapshot's name


def ship(
    sources: Sequence[Path], models: Sequence[str], folder: Path, scratch: Path
) -> Iterator[PretrainedBase]:
    """Write and yield the bases that are good enough. Raises NotFound if there are no rows."""
    directories = list(sources) or [bundled_rows_path(folder)]
    database = Database(f"sqlite:///{scratch / 'mallorn.db'}")
    upgrade(database.url)
    try:
        for directory in directories:
            import_dataset(database, directory)
        snapshot = _snapshot(database)
        if sources:
            _replace_rows(database, snapshot, folder, scratch)
        bases = list(_pretrain(database, snapshot, models))
        _write(database, snapshot, bases, folder)
        yield from bases
    finally:
        database.dispose()


def _snapshot(database: Database) -> Snapshot:
    """Take a snapshot named by its rows, so that a database recognises bundled ones."""
    snapshot = take_snapshot(database, None, Selection())
    if not snapshot.rows:
        raise NotFound(
            "there are no measurements to ship", hint="mallorn dataset export DIR   (then --from DIR)"
        )
    return take_snapshot(database, f"{PREFIX}{snapshot.digest[:DIGITS]}", Selection())


def _replace_rows(database: Database, snapshot: Snapshot, folder: Path, scratch: Path) -> None:
    export(database, snapshot, scratch / "rows")
    shutil.rmtree(bundled_rows_path(folder), ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(scratch / "rows", bundled_rows_path(folder))


def _pretrain(database: Database, snapshot: Snapshot, models: Sequence[str]) -> Iterator[PretrainedBase]:
    """Pretrain bases; yield active ones that were evaluated on unseen tasks or targets."""
    data = read_measurements(database, snapshot.name, Selection())
    for model in models:
        fitted = pretrain(database, data, model)
        yield from (base for base in fitted if base.active and base.metrics.split != "within-task")


def write_list(folder: Path, shipped: Shipped) -> None:
    """Write the list of bases, sorted and indented so that versions have small diffs."""
    bases = sorted(shipped.bases, key=lambda base: base.file)
    content = shipped.model_copy(update={"bases": bases})
    (folder / "bases.json").write_text(content.model_dump_json(indent=1) + "\n")


def _write(database: Database, snapshot: Snapshot, bases: Sequence[PretrainedBase], folder: Path) -> None:
    old = read_bases_list(folder)
    for base in old.bases if old else ():
        (folder / base.file).unlink(missing_ok=True)
    (folder / "bases").mkdir(parents=True, exist_ok=True)
    listed = [_write_base(database, base, folder) for base in bases]
    write_list(folder, Shipped(snapshot=snapshot.name, bases=listed))


def _write_base(database: Database, base: PretrainedBase, folder: Path) -> ShippedBase:
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
