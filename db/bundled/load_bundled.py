"""Load the measurements and base cost models of this installation into a new database."""

import logging
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from mallorn.core.errors import InvalidRequest, MallornError, NotFound
from mallorn.core.targets import parse_target
from mallorn.db.repositories.cost_models import CostModels, NewCostModel
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import Database

log = logging.getLogger(__name__)

PREFIX: Final = "shipped-"  # of the names of bundled snapshots only
FOLDER: Final = Path(str(files("mallorn.db.bundled"))) / "data"
LIST: Final = "bases.json"


class ShippedBase(BaseModel):
    """A bundled cost-model version, whose bytes are in a separate file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: str
    target: str
    name: str
    rows: int
    metrics: dict[str, object]
    file: str


class Shipped(BaseModel):
    """The content of bases.json: the bundled snapshot and the base cost models."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    snapshot: str  # name of the bundled rows; stored with each base cost model, too
    bases: list[ShippedBase]


def bundled_rows_path(folder: Path) -> Path:
    return folder / "rows"


def read_bases_list(folder: Path) -> Shipped | None:
    path = folder / LIST
    return Shipped.model_validate_json(path.read_bytes()) if path.is_file() else None


def has_bundled_models(url: str) -> bool:
    """Return whether a database has the bundled models. Raises MallornError without bases.json."""
    try:
        return _has_all_bases(url, _require_bases_list(FOLDER))
    except (OSError, ValueError):
        return False  # bring_along logs the reason


def _require_bases_list(folder: Path) -> Shipped:
    if (shipped := read_bases_list(folder)) is None:
        raise MallornError(
            f"this installation lacks {folder}, which holds the bundled measurements and cost models",
            hint="install Mallorn again, or set MALLORN_SHIPPED=false to start without the bundled data",
        )
    return shipped


def _has_all_bases(url: str, shipped: Shipped) -> bool:
    with Database(url) as database, database.session() as session:
        return CostModels(session).has_trained_on(shipped.snapshot)


def load_bundled_models(url: str, folder: Path = FOLDER) -> int:
    """Store the bundled rows and base models if the database lacks them; return the number of new rows.

    The base models are stored last, in one transaction, so a database that has them has the
    rows, too. Versions that a user trained or activated stay active. Files that cannot be read
    are logged, and the service still starts. Raises MallornError if bases.json is missing.
    """
    try:
        shipped = _require_bases_list(folder)
        if _has_all_bases(url, shipped):
            return 0
        from mallorn.db.dataset.import_dataset import import_dataset  # late, because it loads Arrow

        with Database(url) as database:
            blobs = {base.file: (folder / base.file).read_bytes() for base in shipped.bases}
            imported = import_dataset(database, bundled_rows_path(folder))
            with database.transaction() as session:
                for base in shipped.bases[:1]:  # services that start at the same time wait for this lock
                    CostModels(session).lock_target(Targets(session).ensure(parse_target(base.target)).id)
                if not CostModels(session).has_trained_on(shipped.snapshot):
                    for base in shipped.bases:
                        target_id = Targets(session).ensure(parse_target(base.target)).id
                        models = CostModels(session)
                        latest = models.latest(base.family, target_id, base.name)
                        has_no_user_version = latest is None or (latest.snapshot or "").startswith(PREFIX)
                        model = NewCostModel(
                            family=base.family,
                            target_id=target_id,
                            name=base.name,
                            seen_upto=0,
                            rows=base.rows,
                            metrics=base.metrics,
                            blob=blobs[base.file],
                            parent_id=latest.id if latest and has_no_user_version else None,
                            snapshot=shipped.snapshot,
                        )
                        models.add(model, active=has_no_user_version)
    except (InvalidRequest, NotFound, OSError, ValueError) as error:
        log.warning("what comes along cannot be read, and is left out: %s", error)
        return 0
    log.info("%s rows and %s bases came along (%s)", imported.added, len(shipped.bases), shipped.snapshot)
    return imported.added
