"""The command that looks for what faults left in a data directory, database and artifacts, and mends it."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from cli.host_checks import Finding, disk, look
from cli.telling import States, tell
from cli.terminal.output import JsonOption
from mallorn.core.settings import Settings


def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", help="Where the service keeps its data.  [MALLORN_DATA_DIR]")
    ] = None,
    backup: Annotated[
        Path | None, typer.Option("--backup", metavar="FILE", help="Copy a whole SQLite database there.")
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Mend what is damaged first; damaged files are kept in DATA/damaged."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look for damage: data directory, database, models, exports, cost models, leftovers, sandbox.

    Changes nothing, and may run beside the service; with --repair no service may run. Exit code 1 where
    something is bad.
    """
    known = Settings() if data is None else Settings(data_dir=data.expanduser().absolute())
    mended = _repaired(known) if repair else ()
    tell(chain(mended, _findings(known, backup)), as_json, States("bad", "warn"), "nothing is damaged")


def _repaired(known: Settings) -> Iterator[Finding]:
    """Raises DataDirInUse while a service holds the directory."""
    from cli.doctoring.repair import repaired
    from stack.datadir import DataDir

    directory = DataDir(known.data_dir.absolute())
    if not directory.path.is_dir():  # the first check says so
        return
    directory.prepare()
    with directory.locked():
        yield from repaired(known)


def _findings(known: Settings, backup: Path | None) -> Iterator[Finding]:
    from cli.doctoring import place
    from stack.datadir import DataDir

    directory = DataDir(known.data_dir.absolute())
    yield look("directory", lambda: place.rights(directory.path))
    yield look("disk", lambda: disk(directory.path))
    yield from _stored(known, backup)
    yield look("stack", lambda: place.stack(directory), necessary=False)
    yield look("leftovers", place.leftovers, necessary=False)
    yield look("sandbox", lambda: place.sandbox(known.sandbox))


def _stored(known: Settings, backup: Path | None) -> Iterator[Finding]:
    """What needs the database; each is looked at only where the one before it lets it be read."""
    from cli.doctoring import database, stored
    from db.session import Database

    opened = Database(known.database_url)
    try:
        whole = look("database", lambda: database.integrity(opened))
        yield whole
        if not whole.ok:
            return
        yield look("backups", lambda: database.backups(opened))
        if backup is not None:
            yield look("backup", lambda: database.backed_up(opened, backup))
        tables = look("tables", lambda: database.tables(opened))
        yield tables
        if tables.ok:
            yield look("models", lambda: stored.models(opened, known.artifacts))
            yield look("exports", lambda: stored.exports(opened))
            yield look("cost models", lambda: stored.cost_models(opened))
    finally:
        opened.dispose()
