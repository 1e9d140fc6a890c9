"""Commands that list, upload and delete models."""

from typing import Annotated, Final

import typer

from mallorn.cli.find_client_and_job import open_reader
from mallorn.cli.terminal.option_groups import expand_option_groups
from mallorn.cli.terminal.output import (
    JsonOption,
    Place,
    YesOption,
    client,
    confirm_or_exit,
    print_json,
    print_note,
    print_rows,
    stdout,
)
from mallorn.cli.terminal.progress_bars import upload_with_bar
from mallorn.core.values.dataset import UploadedModel
from mallorn.wording.format_values import Column

COLUMNS: Final = (
    Column[UploadedModel]("MODEL", lambda model: model.id),
    Column[UploadedModel]("NAME", lambda model: model.name),
    Column[UploadedModel]("BYTES", lambda model: model.size_bytes),
)
NONE_YET: Final = "no models yet; `mallorn tune` uploads one, and so does   mallorn models --upload FILE"
app = typer.Typer(invoke_without_command=True, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
@expand_option_groups
def models(
    ctx: typer.Context,
    upload: Annotated[
        str | None, typer.Option(metavar="FILE", help="Upload a model and print its id.")
    ] = None,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List the uploaded models, or upload one."""
    if ctx.invoked_subcommand is not None:
        return
    if upload is None:
        with open_reader(*place) as api:
            rows = list(api.models())
        print_rows(rows, COLUMNS, as_json, NONE_YET)
        return
    with client(*place) as api:
        model_id = upload_with_bar(api, upload)
    if as_json:
        print_json({"id": model_id})
    else:
        stdout().print(model_id)


@app.command("rm")
@expand_option_groups
def rm_models(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Ids of uploaded models.")],
    yes: YesOption = False,
    *,
    place: Place,
) -> None:
    """Delete uploaded models that no job refers to."""
    with client(*place) as api:
        confirm_or_exit(
            f"Delete {', '.join(models)}?",
            f"mallorn models rm {' '.join(models)} --yes{place.data_option}",
            yes,
        )
        for model in models:
            api.delete_model(model)
            print_note(f"deleted {model}")
