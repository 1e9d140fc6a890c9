"""Bars for a person at a terminal; where standard error is none, they say nothing."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from cli.terminal.output import stderr
from mallorn.client import Client, is_model_id

#: How far it is, of how much.
Advance = Callable[[int, int], None]


def bar(words: str) -> AbstractContextManager[Advance]:
    """A bar that stays until the block ends; it moves to and fro until it is told of how much it is."""
    return _shown(words, TaskProgressColumn(), TimeRemainingColumn())


def bytes_bar(words: str) -> AbstractContextManager[Advance]:
    """The same for bytes on their way, with how fast they go."""
    return _shown(words, DownloadColumn(), TransferSpeedColumn())


@contextmanager
def _shown(words: str, *columns: ProgressColumn) -> Iterator[Advance]:
    console = stderr()
    parts = TextColumn("{task.description}", markup=False), BarColumn(), *columns
    with Progress(*parts, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(words, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def upload_with_bar(api: Client, model: str) -> str:
    """The id of a model: the text itself if it is one, else that of the uploaded file."""
    if is_model_id(model):
        return model
    with bytes_bar("uploading") as advance:
        return api.upload(model, advance).id
