"""What faults leave behind is found, named and told with the way out; nothing is changed by looking."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from mallorn.cli.doctor_checks import stored_data as place
from mallorn.costmodels.serialization import add_digest, pack
from mallorn.db.repositories.cost_models import CostModels
from mallorn.stack.data_directory import DataDir, StackInfo
from mallorn.stack.temporary_files import PREFIX
from mallorn.workers.sandbox.sandbox_support import require_sandbox_mode
from tests.fixtures.answers import mallorn
from tests.fixtures.data_directory import MODEL_ID, cost_model, flipped, looked, whole, write


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return whole(tmp_path, monkeypatch)


def bad(home: Path) -> dict[str, Any]:
    """The only finding that is bad."""
    code, found = looked(home)
    (one,) = [each for each in found.values() if not each["ok"]]
    assert code == (9 if one["necessary"] else 0)
    assert one["hint"]
    return one


def test_where_all_is_whole_every_check_says_so(data: Path) -> None:
    result = mallorn("doctor", "--data", data)
    assert result.exit_code == 0, result.output
    assert {line.split()[0] for line in result.stdout.splitlines()} == {"ok"}
    assert "1 models" in result.stdout
    assert "1 jobs" in result.stdout
    assert "1 active cost models" in result.stdout


def test_a_torn_database_is_named_and_left_as_it_is(data: Path) -> None:
    file = data / "mallorn.db"
    torn = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes(torn)
    found = bad(data)
    assert found["name"] == "database"
    assert str(file) in found["words"]
    assert file.read_bytes() == torn


def test_what_is_no_database_is_named(data: Path) -> None:
    (data / "mallorn.db").write_bytes(b"no database" * 1000)
    assert str(data / "mallorn.db") in bad(data)["words"]


def test_a_database_that_cannot_be_opened_is_not_called_damaged(data: Path) -> None:
    file = data / "mallorn.db"
    file.unlink()
    file.mkdir()
    found = bad(data)
    assert f"{file} cannot be opened" in found["words"]
    assert found["hint"] == f"ls -l {data}"


def test_tables_of_another_version_are_found(data: Path) -> None:
    write(data, lambda session: session.execute(text("UPDATE alembic_version SET version_num = '0.1.0'")))
    found = bad(data)
    assert (found["name"], found["hint"]) == ("tables", "mallorn migrate")


def test_rows_that_break_what_must_hold_are_named(data: Path) -> None:
    write(data, lambda session: session.execute(text("UPDATE jobs SET finished_at = 2e9, state = 'tuning'")))
    found = bad(data)
    assert found["name"] == "invariants"
    assert found["words"].startswith("a job has a time of its end exactly if it has ended, but not for job ")


@pytest.mark.parametrize(
    ("content", "said"), [(None, "is missing"), (b"another", "other bytes")], ids=["missing", "other"]
)
def test_a_model_that_is_not_what_its_row_says_is_found(content: bytes | None, said: str, data: Path) -> None:
    file = data / "artifacts" / "models" / MODEL_ID
    file.unlink() if content is None else file.write_bytes(content)
    found = bad(data)
    assert found["name"] == "models"
    assert f"{file} " in found["words"]
    assert said in found["words"]


def test_a_missing_export_is_found(data: Path) -> None:
    export = data / "artifacts" / "exports" / "job" / "target"
    (export / "schedules.json").unlink()
    found = bad(data)
    assert found["name"] == "exports"
    assert str(export) in found["words"]


@pytest.mark.parametrize(
    "blob",
    [b"", pack("static", {"a": 1}, {})[:-30], flipped(add_digest(b"trees" * 20))],
    ids=["empty", "truncated", "flipped"],
)
def test_a_damaged_cost_model_is_found_without_loading_it(blob: bytes, data: Path) -> None:
    write(data, lambda session: CostModels(session).add(cost_model(blob)))
    found = bad(data)
    assert found["name"] == "cost models"
    assert "static" in found["words"]


def test_what_a_killed_stack_left_is_a_warning(data: Path) -> None:
    directory = DataDir(data)
    directory.create_directories()
    directory.stack_file.write_text(json.dumps(StackInfo("http://x", 1, "", "", False).__dict__))
    assert bad(data)["name"] == "stack"


@pytest.mark.parametrize("place", [".", "data/scratch"])
def test_a_folder_of_a_dead_part_is_a_warning_and_stays(data: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / place / f"{PREFIX}worker-dead"
    folder.mkdir(parents=True)
    found = bad(data)
    assert found["name"] == "leftovers"
    assert str(folder) in found["words"]
    assert folder.is_dir()


def test_a_host_without_the_walls_that_are_required_is_bad(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLORN_SANDBOX", "require")
    monkeypatch.setattr(
        place,
        "probe_sandbox_support",
        lambda mode: require_sandbox_mode("without a network of its own", mode),
    )
    found = bad(data)
    assert found["name"] == "sandbox"
    assert "without a network" in found["words"]


def test_a_directory_that_is_not_there_is_bad(tmp_path: Path) -> None:
    code, found = looked(tmp_path / "nowhere")
    assert code == 9
    assert not found["directory"]["ok"]
    assert not (tmp_path / "nowhere").exists()


def test_a_backup_is_whole_while_another_writes(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    writer = sqlite3.connect(data / "mallorn.db")
    writer.execute("UPDATE models SET name = 'not committed'")
    code, found = looked(data, "--backup", copy)
    writer.close()
    assert (code, found["backup"]["ok"]) == (0, True)
    with sqlite3.connect(copy) as opened:
        assert opened.execute("SELECT name FROM models").fetchall() == [("net.onnx",)]
        assert opened.execute("PRAGMA quick_check").fetchone() == ("ok",)


def test_a_backup_writes_over_nothing(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_text("of yesterday")
    code, found = looked(data, "--backup", copy)
    assert (code, found["backup"]["ok"]) == (9, False)
    assert copy.read_text() == "of yesterday"


def test_a_backup_that_fails_leaves_nothing(data: Path, tmp_path: Path) -> None:
    code, found = looked(data, "--backup", tmp_path / "nowhere" / "copy.db")
    assert (code, found["backup"]["ok"]) == (9, False)
    assert found["models"]["ok"]
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.postgres
def test_a_server_looks_after_its_own_pages(
    data: Path, clean_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLORN_DATABASE_URL", clean_postgres)
    code, found = looked(data, "--backup", tmp_path / "copy.db")
    assert [name for name, each in found.items() if not each["ok"]] == ["backup"]
    assert code == 9
    assert "pg_dump" in found["backup"]["hint"]
    assert not (tmp_path / "copy.db").exists()


def test_a_server_that_is_away_is_bad(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLORN_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    code, found = looked(data)
    assert (code, found["database"]["ok"]) == (9, False)
    assert "models" not in found
