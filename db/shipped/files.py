"""What comes along as files: rows as `mallorn dataset export` writes them, and bases of these rows."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

FOLDER: Final = Path(str(files("db.shipped"))) / "data"


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
    """The directory of the measurements."""
    return folder / "rows"


def read_list(folder: Path) -> Shipped | None:
    """What is listed; None where nothing comes along, as in a copy without these files."""
    listed = folder / "bases.json"
    return Shipped.model_validate_json(listed.read_bytes()) if listed.is_file() else None


def write_list(folder: Path, shipped: Shipped) -> None:
    """Sorted and indented, so that a new version shows what has changed."""
    bases = sorted(shipped.bases, key=lambda base: base.file)
    told = shipped.model_copy(update={"bases": bases})
    (folder / "bases.json").write_text(told.model_dump_json(indent=1) + "\n")
