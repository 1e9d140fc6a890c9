"""Checks a data directory, its database, files left by killed stacks, and this host's sandbox."""

import os
import sqlite3
from pathlib import Path

from sqlalchemy import select

from db.backups import back_up, check_pages, folder_of, listed, sqlite_file, taken_at
from db.migrate import check
from db.session import Database
from mallorn.core.errors import Conflict, InvalidRequest, NotFound, StorageFull, Unavailable
from mallorn.core.host_id import host_folder
from stack.data_directory import DataDir
from stack.temporary_files import left_by_the_dead
from workers.sandbox.sandbox_support import reached


def integrity(database: Database) -> str:
    """Check the database file or server. Raises NotFound, DamagedDatabase, Unavailable."""
    file = sqlite_file(database.url)
    if file is None:
        with database.session() as session:
            session.execute(select(1))
        return "the server answers"
    check_pages(file)
    return f"{file} is whole, {file.stat().st_size / 1e6:.1f} MB"


def tables(database: Database) -> str:
    """Raise Conflict if the tables have another version."""
    check(database)
    return "of this version"


def backups(database: Database) -> str:
    """Return the backups' number, folder and times; for a server, where its backup is described."""
    file = sqlite_file(database.url)
    if file is None:
        return "by pg_dump: docs/runbook.md, Backup"
    files = listed(file)
    if not files:
        return f"none in {folder_of(file)}; a running service makes one a day"
    names = ", ".join(f"{taken_at(each):%Y-%m-%d %H:%M}" for each in files)
    return f"{len(files)} in {folder_of(file)}, of {names} UTC"


def backed_up(database: Database, copy: Path) -> str:
    """Copy the database to a new file. Raises InvalidRequest for a server, Conflict, StorageFull."""
    file = sqlite_file(database.url)
    if file is None:
        raise InvalidRequest("a server's database is not a file", hint="pg_dump: docs/runbook.md, Backup")
    if copy.exists():
        raise Conflict(f"{copy} is there already", hint="name another file with --backup FILE")
    try:
        back_up(file, copy)
    except (OSError, sqlite3.Error) as error:
        raise StorageFull(
            f"cannot write {copy}: {error}", hint="name another file with --backup FILE"
        ) from None
    return f"{copy} is a whole copy of {file}"


NEXT_START = "nothing to do: the next   mallorn up   removes it"


def rights(data: Path) -> str:
    """Check that `data` exists and is writable. Raises NotFound, InvalidRequest."""
    if not data.is_dir():
        raise NotFound(
            f"there is no directory {data} yet", hint="mallorn up, or name another with --data DIR"
        )
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidRequest(
            f"{data} cannot be written by user {os.getuid()}",
            hint=f"chown -R {os.getuid()} {data}, or mount its disk for writing",
        )
    return f"{data} can be written"


def stack(directory: DataDir) -> str:
    """Return the running stack. Raises Unavailable if a killed stack left its file."""
    running = directory.running_stack()
    if running is not None:
        return f"{running.url}, process {running.pid}"
    if directory.stack_file.exists():
        raise Unavailable(f"{directory.stack_file} is of a stack that was killed", hint=NEXT_START)
    return "none runs"


def leftovers(directory: DataDir) -> str:
    """Raise Unavailable if killed parts left temporary folders, and name them."""
    places = directory.scratch, host_folder()
    folders = [str(folder) for folder in left_by_the_dead(*places)]
    if folders:
        raise Unavailable(f"killed parts left {', '.join(sorted(folders))}", hint=NEXT_START)
    return f"killed parts left nothing in {' and '.join(map(str, places))}"


def sandbox(mode: str) -> str:
    """Return the sandbox level. Raises NoSandbox if a full one is required and this host lacks it."""
    return f"{reached(mode)}, with MALLORN_SANDBOX={mode}"
