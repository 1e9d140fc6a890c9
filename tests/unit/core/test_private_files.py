"""Other users of the host read no file of the service, whichever command made it first."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mallorn.cli.doctor_checks.stored_data import check_privacy
from mallorn.core.errors import InvalidRequest
from mallorn.core.private_files import close_to_others, make_private_directory, write_output
from mallorn.db.backups import take_backup
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from mallorn.stack.data_directory import DataDir


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "home" / "data"


def test_the_first_migration_makes_private_files(data: Path) -> None:
    file = data / "mallorn.db"
    upgrade(f"sqlite:///{file}")
    assert (mode(data), mode(file)) == (0o700, 0o600)
    with Database(f"sqlite:///{file}") as database, database.transaction() as session:
        session.connection().exec_driver_sql("DELETE FROM jobs")
        assert {mode(each) for each in data.iterdir() if each.is_file()} == {0o600}, "of the log, too"
    assert mode(take_backup(file, keep=1)) == 0o600
    assert mode(data / "backups") == 0o700


def test_an_open_database_is_closed_by_the_next_migration(data: Path) -> None:
    file = data / "mallorn.db"
    upgrade(f"sqlite:///{file}")
    file.chmod(0o644)
    upgrade(f"sqlite:///{file}")
    assert mode(file) == 0o600


def test_an_open_data_directory_is_closed_by_the_next_start(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = DataDir(data)
    directory.create_directories()
    assert caplog.messages == []
    data.chmod(0o755)
    with pytest.raises(InvalidRequest, match="all users of this host"):
        check_privacy(data)
    directory.create_directories()
    assert mode(data) == 0o700
    assert "was open to all users" in caplog.text
    assert "cannot read" in check_privacy(data)


def test_a_directory_that_holds_no_data_of_ours_keeps_its_mode(data: Path) -> None:
    data.mkdir(parents=True)
    (data / "models").mkdir()
    DataDir(data).create_directories()
    assert mode(data) == 0o755


def test_an_empty_directory_is_closed(data: Path) -> None:
    data.mkdir(parents=True)
    DataDir(data).create_directories()
    assert mode(data) == 0o700


@pytest.mark.parametrize("other", [0o1777, 0o750])
def test_a_shared_temporary_directory_and_a_group_keep_their_rights(data: Path, other: int) -> None:
    make_private_directory(data)
    data.chmod(other)
    close_to_others(data)
    assert mode(data) == other


def test_missing_parents_are_private_and_existing_ones_stay(data: Path, tmp_path: Path) -> None:
    before = mode(tmp_path)
    make_private_directory(data)
    assert (mode(tmp_path), mode(data.parent), mode(data)) == (before, 0o700, 0o700)


@pytest.mark.parametrize("place", ["out.xml", "folder/out.xml"])
def test_no_output_is_written_through_a_link_of_a_checkout(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout := tmp_path / "checkout").mkdir()
    (outside := tmp_path / "outside").mkdir()
    (file := outside / "out.xml").write_text("the user's")
    (checkout / "out.xml").symlink_to(file)
    (checkout / "folder").symlink_to(outside)
    monkeypatch.chdir(checkout)
    with pytest.raises(InvalidRequest, match="is a link"):
        write_output(Path(place), "ours")
    assert file.read_text() == "the user's"


def test_an_output_replaces_a_longer_file(tmp_path: Path) -> None:
    write_output(tmp_path / "out", "a long text")
    write_output(tmp_path / "out", "short")
    assert (tmp_path / "out").read_text() == "short"
