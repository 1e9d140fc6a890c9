"""Options of the dataset commands that select a database and rows in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from mallorn.cli.run_service_part import require_packages
from mallorn.core.errors import NotFound
from mallorn.core.settings import Settings
from mallorn.core.targets import parse_target

if TYPE_CHECKING:
    from mallorn.db.repositories.snapshots import Selection
    from mallorn.db.session import Database

DAY: Final = "%Y-%m-%d"
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="A data directory.  [MALLORN_DATA_DIR]")
]
DatabaseOption = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="A database instead.  [MALLORN_DATABASE_URL]")
]
TargetOption = Annotated[str | None, typer.Option("--target", help="Only rows of this target.")]
OpOption = Annotated[
    str | None, typer.Option("--op", help="Only rows of this operator, as `stats` names it.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="Only rows that jobs of this model measured: its id or name.")
]
SinceOption = Annotated[
    datetime | None,
    typer.Option("--since", metavar="DATE", formats=[DAY], help="Only from this day on, UTC."),
]
UntilOption = Annotated[
    datetime | None, typer.Option("--until", metavar="DATE", formats=[DAY], help="Only before this day, UTC.")
]
SnapshotOption = Annotated[
    str | None, typer.Option("--snapshot", metavar="NAME", help="Only the rows of this snapshot.")
]


class DatasetPlace(NamedTuple):
    """The database that a command works on; by default that of the settings."""

    data: DataOption = None
    database: DatabaseOption = None


class RowFilter(NamedTuple):
    """Filters that select the measurements for a command."""

    target: TargetOption = None
    op: OpOption = None
    model: ModelOption = None
    since: SinceOption = None
    until: UntilOption = None


@contextmanager
def dataset(data: Path | None, url: str | None, create: bool = False) -> Iterator["Database"]:
    """Open the database in a data directory, at a URL, or else of this process's settings.

    Raises NotFound if it does not exist and `create` is False, Conflict if its tables are
    older or newer than this version's.
    """
    with require_packages("server"):
        from mallorn.db.engine import parse_url
        from mallorn.db.migrate import check_table_version, upgrade
        from mallorn.db.session import Database
    database_url = url or Settings().database_url
    if data is not None:
        database_url = f"sqlite:///{data.expanduser().absolute() / 'mallorn.db'}"
    parsed_url = parse_url(database_url)
    is_missing = parsed_url.get_backend_name() == "sqlite" and not Path(str(parsed_url.database)).is_file()
    if is_missing and not create:
        message = f"there is no dataset at {parsed_url.database}"
        raise NotFound(message, hint="mallorn tune MODEL   (or name one with --data)")
    if is_missing:
        upgrade(database_url)
    # No time limit, since statements over large datasets take long.
    with Database(database_url, answer_sec=None) as database:
        check_table_version(database)
        yield database


def to_selection(database: "Database", rows: RowFilter) -> "Selection":
    """Convert the options to a database filter. Raises NotFound for an unknown model."""
    from mallorn.db.repositories.snapshots import Selection
    from mallorn.db.repositories.stored_files import Models

    model = rows.model
    if model is not None:
        with database.session() as session:
            model = Models(session).find_id(model)
    return Selection(
        target=None if rows.target is None else parse_target(rows.target).text,
        op=rows.op,
        model=model,
        since=to_seconds(rows.since),
        until=to_seconds(rows.until),
    )


def to_seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.replace(tzinfo=UTC).timestamp()
