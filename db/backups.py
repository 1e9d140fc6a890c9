"""Check and copy SQLite files, and keep a database's backups in a folder next to it."""

import fcntl
import shutil
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import inspect

from mallorn.core.errors import Conflict, MallornError, NotFound, StorageFull, Unavailable
from mallorn.core.private_files import make_private_directory, make_private_file
from mallorn.db.engine import SQLITE_DAMAGE, parse_url
from mallorn.db.migrate import OldTables, check_table_version
from mallorn.db.session import Database

RESTORE: Final = "stop the service, then: mallorn doctor --repair   (docs/runbook.md, Damage)"
# A process with a database open in WAL mode holds a shared lock on these bytes.
SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
FOLDER: Final = "backups"
STAMP: Final = "%Y%m%dT%H%M%SZ"
DAY_SEC: Final = 86400.0
# Disk space that must stay free for the service after a backup is written.
ROOM_LEFT_BYTES: Final = 256 << 20


class DamagedDatabase(MallornError):
    """The SQLite file is damaged, or is not a SQLite database."""


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None for Postgres, which checks its own pages."""
    address = parse_url(url)
    return Path(address.database or "") if address.get_backend_name() == "sqlite" else None


def check_pages(file: Path) -> None:
    """Raise NotFound if missing, DamagedDatabase if corrupt, Unavailable if unreadable."""
    if not file.exists():
        raise NotFound(f"there is no database {file} yet", hint="mallorn migrate")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if not error.sqlite_errorname.startswith(SQLITE_DAMAGE):
            raise Unavailable(f"{file} cannot be opened: {error}", hint=f"ls -l {file.parent}") from None
        result = str(error)
    if result != "ok":
        raise DamagedDatabase(f"{file} cannot be read: {result.splitlines()[-1]}", hint=RESTORE)


def back_up(file: Path, copy: Path) -> None:
    """Copy a database that may be in use; the file `copy` appears only when it is complete."""
    draft = copy.with_name(f"{copy.name}.tmp")
    try:
        make_private_file(draft)
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            # Without WAL the copy is a single file, which can be read from a read-only folder.
            target.execute("PRAGMA journal_mode = DELETE")
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)


def check_unused(file: Path) -> None:
    """Raise Conflict if another process has the database open, by its file locks."""
    with file.open("r+b") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
        except (BlockingIOError, PermissionError):
            raise Conflict(
                f"{file} is in use by another process",
                hint=f"stop coordinator, control and workers   (fuser {file})",
            ) from None


def folder_of(file: Path) -> Path:
    return file.parent / FOLDER


def list_backups(file: Path) -> list[Path]:
    """Return a database's backups, newest first, but those dated in the future last."""
    present = datetime.now(UTC)
    backups: list[Path] = []
    for backup in folder_of(file).glob(f"{file.stem}-*.db"):
        with suppress(ValueError):
            taken_at(backup)
            backups.append(backup)
    return sorted(backups, key=lambda backup: (taken_at(backup) <= present, backup.name), reverse=True)


def taken_at(backup: Path) -> datetime:
    """Return the time in a backup's file name. Raises ValueError if there is none."""
    return datetime.strptime(backup.stem.rpartition("-")[2], STAMP).replace(tzinfo=UTC)


def newest_undamaged(file: Path) -> Path | None:
    """Return the newest backup in which SQLite's quick_check finds no fault, or None."""
    for backup in list_backups(file):
        with suppress(DamagedDatabase, NotFound, Unavailable):
            check_pages(backup)
            return backup
    return None


def take_backup(file: Path, keep: int) -> Path:
    """Back up a database that may be in use, then delete all but the `keep` newest backups.

    If it cannot be written, raises StorageFull, naming the folder, and deletes none.
    """
    folder = folder_of(file)
    backup = folder / f"{file.stem}-{datetime.now(UTC):{STAMP}}.db"
    try:
        make_private_directory(folder)
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes < file.stat().st_size + ROOM_LEFT_BYTES:
            raise _no_backup(folder, f"only {free_bytes / 1e9:.1f} GB are free there")
        back_up(file, backup)
    except (OSError, sqlite3.Error) as error:
        raise _no_backup(folder, str(error)) from error
    for old in list_backups(file)[keep:]:
        old.unlink(missing_ok=True)
    return backup


def take_daily_backup(url: str, keep: int) -> Path | None:
    """Back up SQLite if the newest backup is over a day old. Raises StorageFull."""
    file = sqlite_file(url)
    if file is None or not keep or not file.exists():
        return None
    newest = next(iter(list_backups(file)), None)
    if newest is not None and 0 <= (datetime.now(UTC) - taken_at(newest)).total_seconds() < DAY_SEC:
        return None
    return take_backup(file, keep)


def take_before_migrations(url: str, keep: int) -> Path | None:
    """Back up a SQLite database if this version's migrations will change its tables.

    Raises StorageFull if there is no room; the user may still migrate without a backup.
    """
    file = sqlite_file(url)
    if file is None or not keep or not file.exists():
        return None
    with Database(url) as database:
        try:
            check_table_version(database)
        except OldTables:
            with database.engine.connect() as connection:
                if not inspect(connection).get_table_names():
                    return None  # a new database has nothing to lose
            return take_backup(file, keep)
    return None


def _no_backup(folder: Path, reason: str) -> StorageFull:
    return StorageFull(
        f"no backup was made in {folder}: {reason}",
        hint="free disk space there, or set MALLORN_KEEP_BACKUPS=0 to make no backups",
    )
