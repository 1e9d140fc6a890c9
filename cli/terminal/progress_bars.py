"""Progress bars on stderr; they print nothing if stderr is not a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import progress

from mallorn.cli.terminal.output import stderr
from mallorn.client.coordinator_client import Client, is_model_id
from mallorn.core.errors import InvalidRequest

#: Takes the amount done and the total.
Advance = Callable[[int, int], None]


@contextmanager
def bar(words: str, *columns: progress.ProgressColumn) -> Iterator[Advance]:
    """Show a bar while the block runs, with these columns or else a percentage."""
    console = stderr()
    with progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        *(columns or (progress.TaskProgressColumn(), progress.TimeRemainingColumn())),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        task = bars.add_task(words, total=None)
        yield lambda amount, total: bars.update(task, completed=amount, total=total)


def upload_with_bar(api: Client, model: str, inputs: Path | None = None) -> str:
    """Upload a file, with inputs for checks, and return its model id; return `model` itself
    if it is an id. Raises InvalidRequest for an id with inputs."""
    if is_model_id(model):
        if inputs is not None:
            raise InvalidRequest("--inputs is uploaded with a model's file", hint="give the file, not the id")
        return model
    with bar("uploading", progress.DownloadColumn(), progress.TransferSpeedColumn()) as advance:
        return api.upload(model, advance, inputs=inputs).id
