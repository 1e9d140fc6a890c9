"""Bars: for a person at a terminal, and for nobody else."""

import io
from contextlib import AbstractContextManager

import pytest
from rich.console import Console
from rich.progress import DownloadColumn

from mallorn.cli.terminal import progress_bars
from mallorn.cli.terminal.progress_bars import Advance, bar


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
