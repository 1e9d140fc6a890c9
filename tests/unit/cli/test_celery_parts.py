"""How workers are started: with our own modules, wherever that happens."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import Celery

from stack.run_celery import run_worker

TASKS = "tasks_of_this_test"


@pytest.fixture
def two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of ours on the path, and one of the same name in the working directory."""
    for place in ("ours", "theirs"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{TASKS}.py").write_text(f"PLACE = {place!r}")
    monkeypatch.syspath_prepend(tmp_path / "ours")
    monkeypatch.chdir(tmp_path / "theirs")
    yield
    sys.modules.pop(TASKS, None)


@pytest.mark.usefixtures("two_places")
def test_tasks_are_ours_and_not_those_of_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celery(include=[TASKS], set_as_current=False)
    monkeypatch.setattr(app, "worker_main", lambda argv: app.loader.import_default_modules())
    run_worker(app, ["q"], "w")
    assert sys.modules[TASKS].PLACE == "ours"
