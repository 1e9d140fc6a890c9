"""Backups of a SQLite database in a folder beside it: made, listed, found whole, and the oldest let go."""

import shutil
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import inspect

from db.check_and_copy_sqlite import DamagedDatabase, back_up, check_pages, sqlite_file
from db.migrate import OldTables, check
from db.session import Database
from mallorn.core.errors import NotFound, StorageFull, Unavailable

FOLDER: Final = "backups"
STAMP: Final = "%Y%m%dT%H%M%SZ"
DAY_SEC: Final = 86400.0
# What the service goes on with while a backup lies beside it.
ROOM_LEFT_BYTES: Final = 256 << 20


def folder_of(file: Path) -> Path:
    """Where the backups of a database lie."""
    return file.parent / FOLDER


def listed(file: Path) -> list[Path]:
    """The backups of a database, the newest first; last those that a clock dated which was ahead."""
    now, found = datetime.now(UTC), list[Path]()
    for each in folder_of(file).glob(f"{file.stem}-*.db"):
        with suppress(ValueError):
            taken_at(each)
            found.append(each)
    return sorted(found, key=lambda each: (taken_at(each) <= now, each.name), reverse=True)


def taken_at(backup: Path) -> datetime:
    """When a backup was begun, by its name. Raises ValueError for a file that is none."""
    return datetime.strptime(backup.stem.rpartition("-")[2], STAMP).replace(tzinfo=UTC)


def newest_whole(file: Path) -> Path | None:
    """The newest backup that SQLite finds no fault in."""
    for backup in listed(file):
        with suppress(DamagedDatabase, NotFound, Unavailable):
            check_pages(backup)
            return backup
    return None


def take(file: Path, keep: int) -> Path:
    """Back a database up that may be in use, and delete all but the `keep` newest backups.

    Raises StorageFull, naming the folder, where it has no room for one; nothing is deleted then.
    """
    folder = folder_of(file)
    backup = folder / f"{file.stem}-{datetime.now(UTC):{STAMP}}.db"
    try:
        folder.mkdir(exist_ok=True)
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < file.stat().st_size + ROOM_LEFT_BYTES:
            raise _no_backup(folder, f"only {free_bytes / 1e9:.1f} GB are free there")
        back_up(file, backup)
    except (OSError, sqlite3.Error) as error:
        raise _no_backup(folder, str(error)) from error
    for old in listed(file)[keep:]:
        old.unlink(missing_ok=True)
    return backup


def take_daily(url: str, keep: int) -> Path | None:
    """Back a SQLite database up, unless its newest backup is younger than a day. Raises StorageFull."""
    file = sqlite_file(url)
    if file is None or not keep or not file.exists():
        return None
    newest = next(iter(listed(file)), None)
    if newest is not None and 0 <= (datetime.now(UTC) - taken_at(newest)).total_seconds() < DAY_SEC:
        return None
    return take(file, keep)


def take_before_migrations(url: str, keep: int) -> Path | None:
    """Back a SQLite database up whose tables the next migrations change.

    Raises StorageFull: whoever has no room for a backup is asked before the tables are changed without one.
    """
    file = sqlite_file(url)
    if file is None or not keep or not file.exists():
        return None
    with Database(url) as database:
        try:
            check(database)
        except OldTables:
            with database.engine.connect() as connection:
                if not inspect(connection).get_table_names():
                    return None  # it is new: there is nothing to lose
            return take(file, keep)
    return None


def _no_backup(folder: Path, why: str) -> StorageFull:
    return StorageFull(
        f"no backup was made in {folder}: {why}", hint="free some room, or MALLORN_KEEP_BACKUPS=0"
    )
