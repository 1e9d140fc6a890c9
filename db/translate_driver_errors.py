"""Translate the database drivers' errors into Mallorn's."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from db.engine import READ_ONLY
from mallorn.core.errors import MallornError, StorageFull, Unavailable
from mallorn.core.os_errors import handle_left, no_handle, os_error

# SHMSIZE: the WAL index cannot grow, the error of the first read on a full disk.
_SQLITE_FULL = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
_SQLITE_UNREACHABLE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN")
_SQLITE_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_SQLITE_NOT_WRITTEN = ("SQLITE_READONLY", "SQLITE_IOERR")
_WRITABLE = "ls -l the file and its folder; mount; then mallorn doctor"
_POSTGRES_FULL = "53100"
_POSTGRES_QUERY_CANCELED = "57014"
# Connection lost, a transaction's timeout, out of connections or memory, a lock's timeout,
# shutdown, and the two errors after which a transaction should be retried.
_POSTGRES_UNREACHABLE = ("08", "25P03", "25P04", "53", "55P03", "57", "40001", "40P01")
_RESTORE = "mallorn doctor   (then docs/runbook.md, Damage)"
_CHECK = "check MALLORN_DATABASE_URL and that the database runs"
_PRIMARY = "check that MALLORN_DATABASE_URL leads to the primary (docs/runbook.md, What is behind it)"
_LOOK = "ask for less; where small questions take as long, see what else the database does"


@contextmanager
def translated(writes_to: str | None = None, answer_sec: float | None = None) -> Iterator[None]:
    """Raise StorageFull if the disk is full, Unavailable if the database does not answer or is busy.

    `writes_to` names the database of a block that may write: there StorageFull also means that
    its file cannot be written. `answer_sec` limits each statement on Postgres.
    """
    try:
        yield
    except DBAPIError as error:
        translation = _statement_timeout(error.orig, answer_sec) or _translation(
            error.orig, invalidated=error.connection_invalidated
        )
        name = getattr(error.orig, "sqlite_errorname", "")
        if translation is None and writes_to is not None and name.startswith(_SQLITE_NOT_WRITTEN):
            # The host prevents writes: a read-only file, a limit, or a faulty disk.
            translation = StorageFull(f"{writes_to} cannot be written: {error.orig}", hint=_WRITABLE)
        if translation is None:
            raise
        raise translation from error
    except PoolTimeout as error:
        raise Unavailable("all database connections of this process are in use") from error


def _translation(original: BaseException | None, *, invalidated: bool) -> MallornError | None:
    if isinstance(original, psycopg.Error):
        return _postgres_translation(original, invalidated=invalidated)
    if not isinstance(original, sqlite3.Error):
        return None
    name = getattr(original, "sqlite_errorname", "")
    if name in _SQLITE_FULL:
        return StorageFull()
    if name.startswith("SQLITE_CANTOPEN") and not handle_left():
        return no_handle("the database")
    if name == "SQLITE_NOMEM":
        return os_error(MemoryError())
    if name.startswith(_SQLITE_UNREACHABLE):
        return Unavailable(f"the database does not answer: {original}", hint=_CHECK)
    if name.startswith(_SQLITE_DAMAGE):
        return Unavailable(f"the database file cannot be read: {original}", hint=_RESTORE)
    return None


def _statement_timeout(error: BaseException | None, answer_sec: float | None) -> Unavailable | None:
    if getattr(error, "sqlstate", None) != _POSTGRES_QUERY_CANCELED or answer_sec is None:
        return None
    return Unavailable(f"this question takes longer than {answer_sec:g} s on this database", hint=_LOOK)


def _postgres_translation(error: psycopg.Error, *, invalidated: bool) -> MallornError | None:
    if error.sqlstate == _POSTGRES_FULL:
        return StorageFull("the database server's disk is full; free some room there, then resume")
    if invalidated and error.sqlstate == READ_ONLY:
        return Unavailable(f"the database takes no writes: {error}", hint=_PRIMARY)
    is_unreachable = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    if invalidated or is_unreachable or (error.sqlstate or "").startswith(_POSTGRES_UNREACHABLE):
        return Unavailable(f"the database does not answer: {error}", hint=_CHECK)
    return None
