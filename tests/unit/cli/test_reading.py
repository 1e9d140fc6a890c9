"""Looking at jobs where no service runs: the commands read the data directory themselves."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from typer.testing import Result

from mallorn.core.errors import ExitCode
from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from mallorn.stack.data_directory import DataDir
from mallorn.wording.format_values import TAKE_DATA, insert_option
from tests.fixtures.answers import Shell, data, mallorn, refused
from tests.fixtures.coordinator import Coordinator, OwnedRows
from tests.fixtures.kept import Kept
from tests.fixtures.rows import new_job

Type = Callable[..., Result]
NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("MALLORN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("mallorn.cli.find_client_and_job.DEFAULT_URL", NOBODY)
    monkeypatch.setattr("mallorn.client.coordinator_client.DEFAULT_URL", NOBODY)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def database(place: Path) -> Iterator[Database]:
    """What a service left in the data directory."""
    url = f"sqlite:///{place / 'mallorn.db'}"
    upgrade(url)
    database = Database(url)
    yield database
    database.dispose()


@pytest.fixture
def left(database: Database) -> OwnedRows:
    """A tuning job with one round of trials."""
    rows = OwnedRows(database)
    rows.measured_round(rows.ok(0, 5.0), rows.failed(1))
    return rows


@pytest.fixture
def there(place: Path, shell: Shell) -> Type:
    """Types a command about the data directory."""
    shell.names["DATA"] = place
    return lambda *words: mallorn(*words, "--data", place)


def finish(left: OwnedRows) -> None:
    with left.database.transaction() as session:
        Jobs(session).move_to_state(left.job_id, [JobState.TUNING], JobState.DONE, "")
        Events(session).append(left.job_id, OtherEvent(kind="state", data={"state": "done"}))


LOOKS = ("jobs", "show JOB", "jobs tasks JOB", "dataset records --job JOB", "models", "schedules")
MORE_LOOKS = ("costmodels list", "jobs report JOB --out PLACE/report.html")


def test_what_looks_needs_no_service(
    there: Type, left: OwnedRows, tmp_path: Path, shell: Shell, kept: Kept
) -> None:
    shell.names["JOB"] = left.job_id
    shell("looking", *(f"{command} --data DATA" for command in LOOKS + MORE_LOOKS))
    assert "round 0" in there("jobs", "explain", left.job_id).stdout
    assert left.job_id in there("jobs", "compare", left.job_id, left.job_id).stdout
    assert left.job_id in (tmp_path / "report.html").read_text()
    standing = "watch JOB", "jobs pause JOB", "jobs cancel JOB"
    shell("no service runs", *(f"{command} --data DATA" for command in standing))
    assert data(there("show", left.job_id, "--json"))["state"] == "tuning"
    finish(left)
    ended = "watch JOB", "watch JOB --json", "jobs pause JOB", "jobs cancel JOB"
    shell("it has ended", *(f"{command} --data DATA" for command in ended))
    kept("without-a-service", shell.texts)


def test_looking_starts_nothing_and_leaves_nothing(there: Type, left: OwnedRows, place: Path) -> None:
    left.database.dispose()
    before = sorted(path.name for path in place.iterdir())
    assert there("jobs").exit_code == 0
    assert sorted(path.name for path in place.iterdir()) == before


@pytest.mark.parametrize("command", ["jobs", "models", "dataset records", "schedules"])
def test_before_the_first_job_there_is_nothing_to_list(there: Type, place: Path, command: str) -> None:
    result = there(*command.split())
    assert (result.exit_code, result.stdout) == (0, "")
    assert data(there(*command.split(), "--json")) == []
    assert not place.exists()


@pytest.mark.parametrize("command", ["show", "jobs tasks", "jobs explain", "jobs report", "watch"])
def test_before_the_first_job_the_next_step_is_to_tune(there: Type, place: Path, command: str) -> None:
    for result, where in ((there(*command.split()), f" --data {place}"), (mallorn(*command.split()), "")):
        assert result.exit_code == ExitCode.NOT_FOUND
        assert result.stderr == f"error: no jobs yet\nnext:  mallorn tune model.onnx{where}\n"


def test_without_an_id_the_newest_job_is_meant(there: Type, left: OwnedRows) -> None:
    with left.database.transaction() as session:
        newer, _ = Jobs(session).create(new_job("local", target_id=left.target_id, name="newer"))
        session.execute(text("UPDATE jobs SET created_at = created_at + 60 WHERE id = :id"), {"id": newer.id})
    result = there("show", "--json")
    assert data(result)["id"] == newer.id
    assert result.stderr == f"job {newer.id} (newer), the newest\n"


@pytest.mark.parametrize("name", sorted(TAKE_DATA))
def test_a_hint_is_told_where_the_data_are_only_where_its_command_can_be(name: str) -> None:
    assert (
        insert_option(f"mallorn {name} x   (or not)", " --data d") == f"mallorn {name} x --data d   (or not)"
    )
    assert insert_option("mallorn bench m.onnx", " --data d") == "mallorn bench m.onnx"
    assert insert_option("less up.log", " --data d") == "less up.log"
    words = {"jobs": ["jobs", "list"], "models": ["models", "list"], "schedules": ["schedules", "get"]}
    assert "--data" in mallorn(*words.get(name, [name]), "--help").stdout


def test_a_directory_of_older_tables_is_left_as_it_is(there: Type, place: Path) -> None:
    place.mkdir()
    with sqlite3.connect(place / "mallorn.db") as connection:
        connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    refused(there("jobs"), "an older Mallorn", f"next:  MALLORN_DATA_DIR={place} mallorn migrate")
    with sqlite3.connect(place / "mallorn.db") as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("alembic_version",)]


def test_a_file_that_is_no_database_is_named(there: Type, place: Path) -> None:
    place.mkdir()
    (place / "mallorn.db").write_text("this is no database, and must not be taken for one")
    refused(there("jobs"), "the database file cannot be read")


def test_a_stack_that_starts_beside_it_is_not_in_the_way(there: Type, left: OwnedRows, place: Path) -> None:
    directory = DataDir(place)
    directory.create_directories()
    with directory.hold_stack_lock():  # it is not ready yet
        assert left.job_id in there("jobs").stdout


def test_a_coordinator_at_the_usual_address_is_asked_before_an_unnamed_directory(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.upload()
    monkeypatch.setattr("mallorn.cli.find_client_and_job.DEFAULT_URL", coordinator.url)
    assert len(data(mallorn("models", "--json"))) == 1
    monkeypatch.setattr("mallorn.cli.find_client_and_job.DEFAULT_URL", NOBODY)
    assert data(mallorn("models", "--json")) == []


def test_another_users_service_at_the_usual_address_is_named_and_left_alone(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.upload()
    monkeypatch.setattr("mallorn.cli.find_client_and_job.DEFAULT_URL", coordinator.url)
    monkeypatch.setattr("mallorn.client.coordinator_client.DEFAULT_URL", coordinator.url)
    monkeypatch.setattr("mallorn.core.address_checks.os.getuid", lambda: 4242)
    looked = mallorn("models", "--json")
    assert data(looked) == []
    assert f"the service at {coordinator.url} belongs to user " in looked.stderr
    assert f"add   --url {coordinator.url}" in looked.stderr
    refused(mallorn("jobs", "rm", "0a1b"), "belongs to user")
    assert len(data(mallorn("models", "--json", "--url", coordinator.url))) == 1
