"""Migrate a database to this version's tables, and check whether it has been migrated."""

import errno
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from mallorn.core.errors import Conflict, StorageFull, Unavailable
from mallorn.core.installation import pip_upgrade_command
from mallorn.core.private_files import make_private_directory, make_private_file
from mallorn.db.engine import WRITE, create_engine, parse_url, translate_database_errors
from mallorn.db.session import Database

_LOCK = 0x6D616C6C  # "mall": key of our advisory lock on a Postgres server
_MIGRATE = "mallorn migrate"


class NewerTables(Conflict):
    """The database was written by a newer Mallorn."""


class OldTables(Conflict):
    """The tables of the database are of another version."""


def upgrade(url: str, revision: str = "head") -> None:
    """Run missing migrations in one transaction; concurrent processes wait for its end.

    Raises Conflict for tables of a newer Mallorn or a development version and for broken
    references, StorageFull for a full disk, and Unavailable for a silent database.
    """
    address = parse_url(url)
    if address.get_backend_name() == "sqlite" and address.database is not None:
        try:
            make_private_directory(Path(address.database).parent)
            make_private_file(Path(address.database))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull() from error
            message = f"cannot create {address.database}: {error.strerror}"
            raise Unavailable(message, hint="set MALLORN_DATA_DIR") from error
    # SQLite alters a table by rebuilding it, which foreign keys would treat as a deletion.
    engine = create_engine(url, foreign_keys=False)
    try:
        # On SQLite, BEGIN IMMEDIATE takes the lock, before the version is read.
        with translate_database_errors(), engine.execution_options(**{WRITE: True}).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            _read_known_revision(connection)
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, revision)
            if connection.dialect.name == "sqlite":
                broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
                if broken is not None:
                    message = f"a row of {broken[0]} refers to a missing row of {broken[2]}"
                    raise Conflict(message, hint=_MIGRATE)
    finally:
        engine.dispose()


def check_table_version(database: Database) -> None:
    """Raise OldTables, NewerTables or Conflict, with a command, unless all is current."""
    with translate_database_errors(), database.engine.connect() as connection:
        revision = _read_known_revision(connection)
    if revision != _script().get_current_head():
        raise OldTables(hint=_MIGRATE)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    return config


def _script() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _read_known_revision(connection: Connection) -> str | None:
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is None or revision in {script.revision for script in _script().walk_revisions()}:
        return revision
    if revision.isdigit():
        raise Conflict(
            f"the database was written by a development version before 0.1.0 (revision {revision})",
            hint="mallorn dataset import DIR --data NEW   (DIR: from `dataset export` of the old version)",
        )
    message = f"the database was written by a newer Mallorn (revision {revision})"
    raise NewerTables(message, hint=pip_upgrade_command())
