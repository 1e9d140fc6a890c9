"""Check the pages of a SQLite file without writing to it, and copy a SQLite database that is in use."""

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from db.engine import parse_url
from mallorn.core.errors import Conflict, MallornError, NotFound, Unavailable

RESTORE: Final = "stop the service, then: mallorn doctor --repair   (docs/runbook.md, Damage)"
# A process with a database open in WAL mode holds a shared lock on these bytes.
SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
_DAMAGE: Final = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class DamagedDatabase(MallornError):
    """The SQLite file is damaged, or is not a SQLite database."""


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database; None for Postgres, which checks its own pages."""
    parsed = parse_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def check_pages(file: Path) -> None:
    """Raise NotFound if the file is missing, DamagedDatabase if corrupt, Unavailable if unreadable."""
    if not file.exists():
        raise NotFound(f"there is no database {file} yet", hint="mallorn migrate")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if not error.sqlite_errorname.startswith(_DAMAGE):
            raise Unavailable(f"{file} cannot be opened: {error}", hint=f"ls -l {file.parent}") from None
        result = str(error)
    if result != "ok":
        raise DamagedDatabase(f"{file} cannot be read: {result.splitlines()[-1]}", hint=RESTORE)


def back_up(file: Path, copy: Path) -> None:
    """Copy a database that may be in use; the file `copy` appears only when it is complete."""
    draft = copy.with_name(f"{copy.name}.tmp")
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            # Without WAL the copy is a single file, which can be read from a read-only folder.
            target.execute("PRAGMA journal_mode = DELETE")
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)


def check_unused(file: Path) -> None:
    """Raise Conflict if another process has the database open, which the kernel's file locks show."""
    with file.open("r+b") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
        except (BlockingIOError, PermissionError):
            raise Conflict(
                f"{file} is in use by another process",
                hint=f"stop coordinator, control and workers   (fuser {file})",
            ) from None
