"""Commands that list, upload and delete models."""

from typing import Annotated, Final

import typer

from mallorn.cli.find_client_and_job import open_reader
from mallorn.cli.terminal import output
from mallorn.cli.terminal.option_groups import command_group
from mallorn.cli.terminal.progress_bars import upload_with_bar
from mallorn.core.values.dataset import UploadedModel
from mallorn.wording.format_values import Column

COLUMNS: Final = (
    Column[UploadedModel]("MODEL", lambda model: model.id),
    Column[UploadedModel]("NAME", lambda model: model.name),
    Column[UploadedModel]("BYTES", lambda model: model.size_bytes),
)
NONE_YET: Final = "no models yet; `mallorn tune` uploads one, and so does   mallorn models upload FILE"
app = command_group("List, upload or delete models.")


@app.command("list")
def models(as_json: output.JsonOption = False, *, place: output.Place) -> None:
    """List the uploaded models."""
    with open_reader(*place) as api:
        rows = list(api.models())
    output.print_rows(rows, COLUMNS, as_json, NONE_YET)


@app.command()
def upload(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The file to upload.")],
    as_json: output.JsonOption = False,
    *,
    place: output.Place,
) -> None:
    """Upload a model and print its id."""
    with output.client(*place) as api:
        model_id = upload_with_bar(api, model)
    if as_json:
        output.print_json({"id": model_id})
    else:
        output.stdout().print(model_id)


@app.command("rm")
def rm_models(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Ids of uploaded models.")],
    yes: output.YesOption = False,
    *,
    place: output.Place,
) -> None:
    """Delete uploaded models that no job refers to."""
    with output.client(*place) as api:
        command = f"mallorn models rm {' '.join(models)} --yes{place.data_option}"
        output.confirm_or_exit(f"Delete {', '.join(models)}?", command, yes)
        for model in models:
            api.delete_model(model)
            output.print_note(f"deleted {model}")
