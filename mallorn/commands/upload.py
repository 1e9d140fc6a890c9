"""Uploading a model with a bar to watch."""

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from mallorn.client import Client, is_model_id
from mallorn.commands.output import stderr


def upload_with_bar(api: Client, model: str) -> str:
    """The id of a model: the text itself if it is one, else that of the uploaded file."""
    if is_model_id(model):
        return model
    console = stderr()
    columns = (TextColumn("uploading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("upload", total=None)
        answer = api.upload(model, lambda sent, total: bar.update(task, completed=sent, total=total))
    return str(answer["id"])
