"""Commands about uploaded models."""

from typing import Annotated, Final

import typer

from mallorn.commands.output import JsonOption, KeyOption, UrlOption, client, print_json, print_rows, stdout
from mallorn.commands.upload import upload_with_bar

COLUMNS: Final = {"id": "MODEL", "name": "NAME", "size_bytes": "BYTES"}


def models(
    upload: Annotated[
        str | None, typer.Option(metavar="FILE", help="Upload a model and print its id.")
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """List the uploaded models, or upload one."""
    with client(url, api_key) as api:
        if upload is None:
            print_rows(
                list(api.models()),
                COLUMNS,
                as_json,
                "no models yet; upload one with   mallorn models --upload FILE",
            )
            return
        model_id = upload_with_bar(api, upload)
    if as_json:
        print_json({"id": model_id})
    else:
        stdout().print(model_id)
