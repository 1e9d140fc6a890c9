"""Makes the frozen databases of a version that is released, which every later version upgrades in a test.

    python -m tests.migration.freezing

writes into `frozen/VERSION`, beside this file, what a service leaves behind that has a finished job, one that
a power cut ended in a round, and a failed one: as a dump of SQLite and of Postgres, with its models.
What is there is never written again: it is what users have.
"""

import gzip
import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from sqlalchemy import create_engine, insert, make_url, select, text

from benchmarks.postgres import Postgres
from mallorn.core.version import VERSION
from mallorn.db.migrate import upgrade
from mallorn.db.tables import Base
from tests.fixtures.service import tiny_network
from tests.fixtures.transcript import Terminal, Typed

FROZEN: Final = Path(__file__).with_name("frozen")
# Older than any machine that will read it, so that it executes there.
TARGET: Final = '{"kind":"llvm","mcpu":"haswell","num-cores":1}'
TUNE: Final = f"mallorn tune tiny.onnx --target '{TARGET}' --policy round-robin --round-size 4"


def main() -> None:
    home = FROZEN / VERSION
    home.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        data = tuned(Path(folder))
        shutil.copytree(data / "artifacts" / "models", home / "artifacts" / "models")
        with closing(sqlite3.connect(data / "mallorn.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (home / "sqlite.sql.gz").write_bytes(packed("\n".join(connection.iterdump())))
        (home / "postgres.sql.gz").write_bytes(packed(dumped(f"sqlite:///{data / 'mallorn.db'}")))


def tuned(home: Path) -> Path:
    """The data directory of somebody who had three jobs and then a power cut."""
    terminal = Terminal(home)
    (home / "tiny.onnx").write_bytes(tiny_network())
    try:
        terminal.type(Typed((f"{TUNE} --trials 8 --out done",), (), {}))
        terminal.type(Typed((f"{TUNE} --trials 8 --only 'nothing*' --out failed",), (), {"exit": 1}))
        terminal.type(Typed((f"{TUNE} --seed 1 --trials 16 --out running",), (), {"kill": 6}))
    finally:
        terminal.close()
    return terminal.data.path


def packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def dumped(sqlite_url: str) -> str:
    """The rows of a SQLite database as a dump of Postgres."""
    with Postgres() as server:
        url = make_url(server.url).set(drivername="postgresql+psycopg")
        address = url.render_as_string(hide_password=False)
        upgrade(address)
        copy_rows(sqlite_url, address)
        words = [str(server.bin_path / "pg_dump"), "--no-owner", "--no-privileges", "--inserts", server.url]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    # What begins with a backslash is for psql alone.
    return "".join(line for line in said.splitlines(keepends=True) if not line.startswith("\\"))


def copy_rows(source_url: str, target_url: str) -> None:
    """Every row of every table, and the numbers that the next ones get."""
    source, target = create_engine(source_url), create_engine(target_url)
    with source.connect() as rows, target.begin() as connection:
        for table in Base.metadata.sorted_tables:
            found = [dict(row) for row in rows.execute(select(table)).mappings()]
            if found:
                connection.execute(insert(table), found)
            for column in table.primary_key:
                sequence = connection.execute(
                    text("SELECT pg_get_serial_sequence(:table, :column)"),
                    {"table": table.name, "column": column.name},
                ).scalar()
                if sequence and found:
                    highest = max(row[column.name] for row in found)
                    connection.execute(text(f"SELECT setval('{sequence}', {highest})"))
    source.dispose()
    target.dispose()


if __name__ == "__main__":
    main()
