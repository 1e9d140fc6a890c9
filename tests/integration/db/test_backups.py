"""Backups of a SQLite file: once a day, before its tables change, and never at the cost of the last room."""

import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from mallorn.core.errors import StorageFull
from mallorn.db import backups
from mallorn.db.backups import (
    STAMP,
    check_pages,
    folder_of,
    list_backups,
    take_before_migrations,
    take_daily_backup,
)
from mallorn.db.migrate import upgrade

BEFORE = "0.2.0.5"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mallorn.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def aged(file: Path, **age: float) -> Path:
    """A backup of that age, empty."""
    taken = datetime.now(UTC) - timedelta(**age)
    folder_of(file).mkdir(exist_ok=True)
    backup = folder_of(file) / f"{file.stem}-{taken:{STAMP}}.db"
    backup.touch()
    return backup


def version(file: Path) -> str:
    with closing(sqlite3.connect(file)) as opened:
        return str(opened.execute("SELECT version_num FROM alembic_version").fetchone()[0])


def test_a_backup_is_made_where_there_is_none_and_is_whole(file: Path) -> None:
    upgrade(url(file))
    made = take_daily_backup(url(file), 3)
    assert made is not None
    check_pages(made)
    assert version(made) == version(file)


@pytest.mark.parametrize(("hours", "is_due"), [(23.9, False), (24.1, True)])
def test_the_next_one_is_made_after_a_day(hours: float, is_due: bool, file: Path) -> None:
    upgrade(url(file))
    aged(file, hours=hours)
    assert (take_daily_backup(url(file), 3) is not None) == is_due


@pytest.mark.parametrize("keep", [1, 2])
def test_a_clock_that_was_ahead_once_stops_no_backups(keep: int, file: Path) -> None:
    upgrade(url(file))
    aged(file, days=-3000)
    made = take_daily_backup(url(file), keep)
    assert made is not None
    assert list_backups(file)[0] == made
    assert take_daily_backup(url(file), keep) is None


def test_the_newest_are_kept(file: Path) -> None:
    upgrade(url(file))
    old = [aged(file, days=day) for day in (2, 3, 4)]
    made = take_daily_backup(url(file), 2)
    assert list_backups(file) == [made, old[0]]


@pytest.mark.parametrize("keep", [0, 3])
def test_tables_that_change_are_backed_up_first(keep: int, file: Path) -> None:
    upgrade(url(file), BEFORE)
    before = version(file)
    made = take_before_migrations(url(file), keep)
    upgrade(url(file))
    assert [version(each) for each in list_backups(file)] == [before] * (made is not None)
    assert (made is not None) == (keep > 0)


def test_tables_of_this_version_and_a_database_that_is_not_there_need_none(file: Path) -> None:
    assert take_before_migrations(url(file), 3) is None
    assert take_daily_backup(url(file), 3) is None
    assert not file.exists()
    upgrade(url(file))
    assert take_before_migrations(url(file), 3) is None


def test_a_new_database_needs_none_however_little_room_there_is(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as new:
        new.execute("PRAGMA journal_mode = WAL")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0))
    assert take_before_migrations(url(file), 3) is None
    assert list_backups(file) == []


class Usage(NamedTuple):
    free: int


def test_without_room_no_backup_is_made_and_none_is_deleted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(url(file))
    old = [aged(file, days=day) for day in (2, 3)]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(backups.ROOM_LEFT_BYTES))
    with pytest.raises(StorageFull, match=r"no backup was made in .*backups"):
        take_daily_backup(url(file), 1)
    assert list_backups(file) == old


@pytest.mark.postgres
def test_a_server_is_backed_up_by_whoever_runs_it(clean_postgres: str) -> None:
    assert take_daily_backup(clean_postgres, 3) is None
    assert take_before_migrations(clean_postgres, 3) is None
