"""Whether the pages of a SQLite file are whole, asked without writing to it; and whole copies of it."""

import fcntl
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from db.engine import parse_url
from mallorn.core.errors import Conflict, MallornError, NotFound, Unavailable

RESTORE: Final = "stop the service, then: mallorn doctor --repair   (docs/runbook.md, Damage)"
# Who has a database open in WAL mode shares a lock on these bytes of it, by SQLite's file format.
SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
_DAMAGE: Final = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class DamagedDatabase(MallornError):
    """A SQLite file that is torn, or none at all."""


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite database; None for Postgres, which looks after its own pages."""
    parsed = parse_url(url)
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def check_pages(file: Path) -> None:
    """Raise NotFound without the file, DamagedDatabase where SQLite finds a fault in it, else Unavailable."""
    if not file.exists():
        raise NotFound(f"there is no database {file} yet", hint="mallorn migrate")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if not error.sqlite_errorname.startswith(_DAMAGE):
            raise Unavailable(f"{file} cannot be opened: {error}", hint=f"ls -l {file.parent}") from None
        said = str(error)
    if said != "ok":
        raise DamagedDatabase(f"{file} cannot be read: {said.splitlines()[-1]}", hint=RESTORE)


def back_up(file: Path, copy: Path) -> None:
    """Copy a database that may be in use, whole; the copy appears when it is complete."""
    draft = copy.with_name(f"{copy.name}.tmp")
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
            target.execute(
                "PRAGMA journal_mode = DELETE"
            )  # one file, which can be read where none is written
        draft.replace(copy)
    finally:
        draft.unlink(missing_ok=True)


def check_unused(file: Path) -> None:
    """Raise Conflict while another process has the database open; asked of the kernel, not of the file."""
    with file.open("r+b") as opened:
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
        except (BlockingIOError, PermissionError):
            raise Conflict(
                f"{file} is in use by another process",
                hint=f"stop coordinator, control, beat and workers   (fuser {file})",
            ) from None
