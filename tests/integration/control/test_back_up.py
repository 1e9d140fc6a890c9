"""Control copies its SQLite database when its timer asks, and says why where it cannot."""

import logging
from pathlib import Path

import pytest

from mallorn.core import queues
from mallorn.core.settings import Settings
from mallorn.db import backups
from mallorn.db.backups import list_backups
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from mallorn.services.control import celery_tasks as tasks
from mallorn.services.control.app import app


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = Settings(data_dir=tmp_path, database_url=f"sqlite:///{tmp_path / 'mallorn.db'}", keep_backups=1)
    monkeypatch.setattr(tasks, "settings", lambda: config)
    monkeypatch.setattr(tasks, "database", lambda: Database(config.database_url))
    upgrade(config.database_url)
    return tmp_path / "mallorn.db"


def test_the_timer_asks_control_to_look_more_than_once_a_day() -> None:
    assert queues.TICKS[queues.BACK_UP] < backups.DAY_SEC
    assert queues.BACK_UP in app.tasks
    assert queues.QUEUES[queues.BACK_UP] == queues.CONTROL


def test_one_backup_is_made_however_often_it_is_asked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks.back_up()
    (made,) = list_backups(file)
    monkeypatch.setitem(queues.TICKS, queues.BACK_UP, 0.0)
    tasks.back_up()
    assert list_backups(file) == [made]


def test_without_room_control_says_so_and_goes_on(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backups, "ROOM_LEFT_BYTES", 1 << 60)
    with caplog.at_level(logging.ERROR):
        tasks.back_up()
    assert list_backups(file) == []
    assert "no backup was made" in caplog.text
    assert "MALLORN_KEEP_BACKUPS" in caplog.text
