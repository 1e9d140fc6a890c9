"""What faults left is mended: nothing is deleted, nothing else is touched, and then nothing is found."""

import fcntl
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from mallorn.costmodels.serialization import add_digest, pack
from mallorn.db.backups import folder_of, take_backup
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.session import Database
from mallorn.db.tables import CostModelRow, Job
from mallorn.stack.data_directory import DataDir
from mallorn.stack.temporary_files import PREFIX
from tests.fixtures.answers import mallorn
from tests.fixtures.data_directory import CONTENT, MODEL_ID, cost_model, flipped, looked, url, whole, write

WHOLE = pack("static", {}, {})
DAMAGED = flipped(add_digest(b"trees" * 20))
HOLDS_OPEN = """
import sqlite3, sys
opened = sqlite3.connect(sys.argv[1])
opened.execute("PRAGMA journal_mode = WAL")
opened.execute("SELECT id FROM jobs").fetchall()
print("held", flush=True)
input()
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return whole(tmp_path, monkeypatch)


def job(home: Path) -> Job:
    database = Database(url(home))
    with database.session() as session:
        found = session.scalars(select(Job)).one()
    database.dispose()
    return found


def active(home: Path) -> list[int]:
    database = Database(url(home))
    with database.session() as session:
        found = session.scalars(select(CostModelRow.version).where(CostModelRow.active)).all()
    database.dispose()
    return list(found)


def repaired(home: Path) -> dict[str, Any]:
    """What was told of the repair, after which nothing is found and nothing is left to mend."""
    code, found = looked(home, "--repair")
    assert code == 0, found
    assert all(each["ok"] for each in found.values()), found
    again = looked(home, "--repair")
    assert again[0] == 0
    assert "repaired" not in again[1]
    return found["repaired"]


def kept(home: Path, name: str) -> bytes:
    """The bytes of the one file of that name that was moved aside."""
    (file,) = (home / "damaged").glob(f"*/{name}")
    return file.read_bytes()


def test_where_all_is_whole_nothing_is_mended(data: Path) -> None:
    code, found = looked(data, "--repair")
    assert code == 0
    assert "repaired" not in found
    assert not (data / "damaged").exists()


def test_a_damaged_model_is_kept_aside_and_its_job_is_told(data: Path) -> None:
    (data / "artifacts" / "models" / MODEL_ID).write_bytes(b"another")
    assert job(data).id in repaired(data)["words"]
    assert kept(data, MODEL_ID) == b"another"
    (warning,) = job(data).warnings
    assert warning.source == "model file"
    assert "again" in warning.hint


def test_a_model_that_is_put_back_is_looked_at_again(data: Path) -> None:
    file = data / "artifacts" / "models" / MODEL_ID
    file.unlink()
    repaired(data)
    assert "1 are missing" in looked(data)[1]["models"]["words"]
    file.write_bytes(CONTENT)
    assert looked(data)[1]["models"]["words"].startswith("1 models are intact")
    file.write_bytes(b"another")
    assert not looked(data)[1]["models"]["ok"]


def test_a_missing_model_without_a_job_is_forgotten(data: Path) -> None:
    write(data, lambda session: session.execute(text("UPDATE jobs SET model_id = 'another'")))
    (data / "artifacts" / "models" / MODEL_ID).unlink()
    assert "no job uses it" in repaired(data)["words"]
    assert looked(data)[1]["models"]["words"].startswith("0 models")


def test_a_store_that_is_not_mounted_is_not_lost(data: Path) -> None:
    (data / "artifacts").rename(data / "elsewhere")
    code, found = looked(data, "--repair")
    assert code == 9
    assert "mount it" in found["repair"]["hint"]
    (data / "elsewhere").rename(data / "artifacts")
    assert job(data).warnings == []
    assert looked(data)[0] == 0


def test_a_job_whose_export_is_gone_says_so(data: Path) -> None:
    (data / "artifacts" / "exports" / "job" / "target" / "schedules.json").unlink()
    repaired(data)
    found = job(data)
    assert found.export_uri is None
    assert [warning.source for warning in found.warnings] == ["exported files"]


def test_the_newest_whole_version_of_a_damaged_cost_model_is_active_again(data: Path) -> None:
    for blob in (WHOLE, DAMAGED, DAMAGED):
        write(data, lambda session, blob=blob: CostModels(session).add(cost_model(blob)))
    assert "@2 is active again" in repaired(data)["words"]
    assert active(data) == [2]


def test_a_damaged_cost_model_without_a_whole_one_before_it_is_retired(data: Path) -> None:
    write(data, lambda session: session.execute(text("DELETE FROM cost_models")))
    write(data, lambda session: CostModels(session).add(cost_model(DAMAGED)))
    assert "no earlier version is intact" in repaired(data)["words"]
    assert active(data) == []


def test_what_killed_parts_left_is_removed(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}worker-dead"
    folder.mkdir()
    directory = DataDir(data)
    directory.create_directories()
    directory.stack_file.write_text("{}")
    assert str(folder) in repaired(data)["words"]
    assert not folder.exists()


def torn(home: Path) -> bytes:
    """Half of the database; which half it is."""
    file = home / "mallorn.db"
    half = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes(half)
    return half


def test_a_torn_database_is_the_newest_whole_backup_again(data: Path) -> None:
    file = data / "mallorn.db"
    backup = take_backup(file, 3)
    later = backup.with_name("mallorn-20990101T000000Z.db")
    later.write_bytes(b"no database" * 1000)
    half = torn(data)
    said = repaired(data)["words"]
    assert "what came later is lost" in said
    assert kept(data, "mallorn.db") == half
    assert job(data).model_id == MODEL_ID
    assert backup.exists()


def test_a_torn_database_without_a_backup_stays_and_the_way_out_is_told(data: Path) -> None:
    half = torn(data)
    code, found = looked(data, "--repair")
    assert code == 9
    assert str(folder_of(data / "mallorn.db")) in found["repair"]["words"]
    assert ".recover" in found["repair"]["hint"]
    assert (data / "mallorn.db").read_bytes() == half


def test_a_database_that_is_gone_comes_back(data: Path) -> None:
    take_backup(data / "mallorn.db", 3)
    (data / "mallorn.db").unlink()
    repaired(data)
    assert job(data).model_id == MODEL_ID


def test_a_torn_database_that_another_has_open_is_left_alone(data: Path) -> None:
    file = data / "mallorn.db"
    take_backup(file, 3)
    command = [sys.executable, "-c", HOLDS_OPEN, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        half = torn(data)
        code, found = looked(data, "--repair")
        left = file.read_bytes()
        other.communicate(b"\n")
    assert code == 9
    assert "in use by another process" in found["repair"]["words"]
    assert left == half


def test_nothing_is_mended_while_a_service_holds_the_directory(data: Path) -> None:
    (data / "artifacts" / "models" / MODEL_ID).write_bytes(b"another")
    directory = DataDir(data)
    directory.create_directories()
    with directory.lock_file.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = mallorn("doctor", "--data", data, "--repair")
    assert result.exit_code
    assert "in use" in result.stderr
    assert "stop it, then   mallorn doctor --repair" in result.stderr
    assert (data / "artifacts" / "models" / MODEL_ID).read_bytes() == b"another"


def test_backups_are_single_files_of_which_the_newest_are_kept(data: Path) -> None:
    file = data / "mallorn.db"
    folder = folder_of(file)
    folder.mkdir()
    for day in (1, 2, 3):
        (folder / f"mallorn-2026010{day}T000000Z.db").write_bytes(b"")
    (folder / "mallorn-of-mine.db").write_bytes(b"")
    newest = take_backup(file, 2)
    names = {"mallorn-20260103T000000Z.db", newest.name, "mallorn-of-mine.db"}
    assert {each.name for each in folder.iterdir()} == names
    with closing(sqlite3.connect(f"file:{newest}?immutable=1", uri=True)) as opened:
        assert opened.execute("SELECT id FROM models").fetchall() == [(MODEL_ID,)]
