"""The command that writes a job's report."""

import time
from pathlib import Path
from typing import Annotated

import typer

from mallorn.commands.output import (
    DataOption,
    JsonOption,
    KeyOption,
    NewestJobArgument,
    UrlOption,
    print_json,
    stdout,
)
from mallorn.commands.reading import find_job, reader
from mallorn.core.errors import InvalidRequest


def report(
    job: NewestJobArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write; default: mallorn-JOB.html.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Write all there is to know of a job into one HTML file that needs no server."""
    from mallorn.report.page import page
    from mallorn.report.story import gather

    with reader(url, api_key, data) as api:
        story = gather(find_job(api, job))
    file = out or Path(f"mallorn-{story.job['id']}.html")
    try:
        file.write_text(page(story, time.time()), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot write {file}: {error.strerror}", hint="choose another --out") from None
    if as_json:
        print_json({"file": str(file)})
    else:
        stdout().print(str(file))
