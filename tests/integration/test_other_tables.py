"""A worker or control of one version does not work on the tables of another."""

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from tests.fixtures.command_line import clean_environment


def started(part: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a part says that ends by itself."""
    env = clean_environment(MALLORN_DATABASE_URL=url, MALLORN_DATA_DIR=str(folder))
    command = [sys.executable, "-P", "-m", "mallorn", part]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("part", ["worker", "control"])
@pytest.mark.parametrize(("revision", "said"), [("9.9.9", "a newer Mallorn"), ("0.1.0", "mallorn migrate")])
def test_a_part_ends_where_the_tables_are_another_versions(
    part: str, revision: str, said: str, tmp_path: Path
) -> None:
    database = Database(f"sqlite:///{tmp_path / 'mallorn.db'}")
    upgrade(database.url)
    with database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": revision})
    database.dispose()
    ended = started(part, database.url, tmp_path)
    assert ended.returncode > 0
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
