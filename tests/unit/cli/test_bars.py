"""Bars: for a person at a terminal, and for nobody else."""

import io
from contextlib import AbstractContextManager
from typing import Any

import pytest
from rich.console import Console
from rich.progress import DownloadColumn

from mallorn.cli.terminal import progress_bars
from mallorn.cli.terminal.progress_bars import Advance, bar
from mallorn.cli.wait_until_tuned import wait_until_tuned
from mallorn.core.states import JobState
from mallorn.core.values.job import JobStatus


def shown(monkeypatch: pytest.MonkeyPatch, made: AbstractContextManager[Advance], terminal: bool) -> str:
    """What a bar that is at 3 of 4 leaves on its way."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    monkeypatch.setattr(progress_bars, "stderr", lambda: console)
    with made as advance:
        advance(3, 4)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, bar("reading [a] file"), terminal=True)
    assert "reading [a] file" in text
    assert "75%" in text


def test_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "3/4 bytes" in shown(monkeypatch, bar("uploading", DownloadColumn()), terminal=True)


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, bar("reading"), terminal=False) == ""


class Measured:
    """A job of two tasks that is measured at its second look."""

    id = "j1"

    def __init__(self, **options: Any) -> None:
        self._states = [JobState.IMPORTING, JobState.TUNING, JobState.DONE]
        self._options = options

    @property
    def state(self) -> JobState:
        state = self._states.pop(0)
        tasks = 0 if state is JobState.IMPORTING else 2
        progress = {"trials": 8, "tasks": tasks}
        known = {"id": "j1", "state": state, "trials": 1000, "progress": progress, "options": self._options}
        self.status = JobStatus.model_validate(known)
        return state


@pytest.mark.parametrize(("options", "share"), [({"task_trials": 8}, "50%"), ({}, "1%")])
def test_a_job_that_is_waited_for_shows_how_much_of_its_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], share: str
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(progress_bars, "stderr", lambda: console)
    wait_until_tuned(Measured(**options), "", 0.0)  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    assert share in console.file.getvalue()
