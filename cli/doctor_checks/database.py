"""Is the database whole, and of this version?"""

import sqlite3
from pathlib import Path

from sqlalchemy import select

from db.backups import folder_of, listed, taken_at
from db.check_and_copy_sqlite import back_up, check_pages, sqlite_file
from db.migrate import check
from db.session import Database
from mallorn.core.errors import Conflict, InvalidRequest, StorageFull


def integrity(database: Database) -> str:
    """Raises NotFound, DamagedDatabase; Unavailable where a server does not answer."""
    file = sqlite_file(database.url)
    if file is None:
        with database.session() as session:
            session.execute(select(1))
        return "the server answers"
    check_pages(file)
    return f"{file} is whole, {file.stat().st_size / 1e6:.1f} MB"


def tables(database: Database) -> str:
    """Raises Conflict where the tables are another version's."""
    check(database)
    return "of this version"


def backups(database: Database) -> str:
    """When the newest backup was made; nothing for a server's database."""
    file = sqlite_file(database.url)
    if file is None:
        return "by pg_dump: docs/runbook.md, Backup"
    known = listed(file)
    if not known:
        return f"none in {folder_of(file)}; a running service makes one a day"
    names = ", ".join(f"{taken_at(each):%Y-%m-%d %H:%M}" for each in known)
    return f"{len(known)} in {folder_of(file)}, of {names} UTC"


def backed_up(database: Database, copy: Path) -> str:
    """Raises InvalidRequest for a server's database, Conflict for a file that is there, StorageFull."""
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
