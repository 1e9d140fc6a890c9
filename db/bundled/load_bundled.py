"""Measurements and bases that come along as files, brought into a database once."""

import logging
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict
from sqlalchemy.orm import Session

from db.repositories.cost_models import CostModels, NewCostModel
from db.repositories.targets import Targets
from db.session import Database
from mallorn.core.errors import InvalidRequest, MallornError, NotFound
from mallorn.core.targets import parse_target

log = logging.getLogger(__name__)

PREFIX: Final = "shipped-"  # of the snapshots that come along; nobody else's begins so
FOLDER: Final = Path(str(files("db.bundled"))) / "data"
LIST: Final = "bases.json"


class ShippedBase(BaseModel):
    """One version of a cost model, its bytes in a file of their own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str
    target: str
    name: str
    rows: int
    metrics: dict[str, object]
    file: str


class Shipped(BaseModel):
    """The list of what comes along."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    snapshot: str  # names the rows, and in a database the bases that came along with them
    bases: list[ShippedBase]


def rows_in(folder: Path) -> Path:
    return folder / "rows"


def read_list(folder: Path) -> Shipped | None:
    """Return the list of a folder; None where there is none."""
    listed = folder / LIST
    return Shipped.model_validate_json(listed.read_bytes()) if listed.is_file() else None


def has_bundled(url: str, folder: Path = FOLDER) -> bool:
    """Return whether a database has what comes along. Raises MallornError if the files are missing."""
    try:
        return _has(url, _needed_list(folder))
    except (OSError, ValueError):
        return False  # bring_along says so


def _needed_list(folder: Path) -> Shipped:
    """Return the list of what comes along. Raises MallornError if there is none."""
    if (shipped := read_list(folder)) is None:
        raise MallornError(
            f"this installation lacks {folder}, the measurements and cost models that come along",
            hint="install Mallorn again, or set MALLORN_SHIPPED=false to begin without them",
        )
    return shipped


def _has(url: str, shipped: Shipped) -> bool:
    with Database(url) as database, database.session() as session:
        return CostModels(session).knows(shipped.snapshot)


def bring_along(url: str, folder: Path = FOLDER) -> int:
    """Store the rows and bases that this version has and the database has not; how many rows were new.

    The bases come last, in one transaction: where they are, everything is. Versions that somebody trained or
    chose there stay the active ones. Files that cannot be read cost no start: the database begins without.
    Raises MallornError where the files are not there.
    """
    try:
        shipped = _needed_list(folder)
        if _has(url, shipped):
            return 0
        from db.dataset.import_dataset import import_dataset  # which loads Arrow

        with Database(url) as database:
            blobs = {base.file: (folder / base.file).read_bytes() for base in shipped.bases}
            imported = import_dataset(database, rows_in(folder))
            _store_bases(database, shipped, blobs)
    except (InvalidRequest, NotFound, OSError, ValueError) as error:
        log.warning("what comes along cannot be read, and is left out: %s", error)
        return 0
    log.info("%s rows and %s bases came along (%s)", imported.added, len(shipped.bases), shipped.snapshot)
    return imported.added


def _store_bases(database: Database, shipped: Shipped, blobs: Mapping[str, bytes]) -> None:
    with database.transaction() as session:
        for base in shipped.bases[:1]:  # two services that start at once take turns here
            CostModels(session).lock_target(Targets(session).ensure(parse_target(base.target)).id)
        if not CostModels(session).knows(shipped.snapshot):
            for base in shipped.bases:
                _store(session, base, shipped.snapshot, blobs[base.file])


def _store(session: Session, base: ShippedBase, snapshot: str, blob: bytes) -> None:
    target_id = Targets(session).ensure(parse_target(base.target)).id
    models = CostModels(session)
    before = models.latest(base.family, target_id, base.name)
    ours = before is None or (before.snapshot or "").startswith(PREFIX)
    new = NewCostModel(
        family=base.family,
        target_id=target_id,
        name=base.name,
        seen_upto=0,
        rows=base.rows,
        metrics=base.metrics,
        blob=blob,
        parent_id=before.id if before and ours else None,
        snapshot=snapshot,
    )
    models.add(new, active=ours)
