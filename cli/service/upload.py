"""Uploading a model with a bar to watch."""

from cli.terminal.bars import bytes_bar
from mallorn.client import Client, is_model_id


def upload_with_bar(api: Client, model: str) -> str:
    """The id of a model: the text itself if it is one, else that of the uploaded file."""
    if is_model_id(model):
        return model
    with bytes_bar("uploading") as advance:
        return api.upload(model, advance).id
