"""`mallorn audit`: lists the requests that changed something, with their owners."""

import itertools
from typing import Annotated, Final

import typer

from cli.read_only_client import reader
from cli.terminal.option_groups import shared
from cli.terminal.output import JsonOption, Place, print_rows
from mallorn.core.values.access_control import AuditEntry
from mallorn.wording.format_values import Column, moment

COLUMNS: Final = (
    Column[AuditEntry]("AT", lambda entry: moment(entry.at)),
    Column[AuditEntry]("OWNER", lambda entry: entry.owner),
    Column[AuditEntry]("KEY", lambda entry: entry.key_id or None),
    Column[AuditEntry]("STATUS", lambda entry: entry.status),
    Column[AuditEntry]("WHAT", lambda entry: f"{entry.method} {entry.path}"),
    Column[AuditEntry]("ABOUT", lambda entry: f"{entry.subject}: {entry.detail}" if entry.subject else None),
)


@shared
def audit(
    limit: Annotated[int, typer.Option(min=1, help="List this many of the newest.")] = 50,
    as_json: JsonOption = False,
    *,
    place: Place,
) -> None:
    """List requests that changed something or tried to, newest first. An admin sees those of all owners."""
    with reader(*place) as api:
        rows = list(itertools.islice(api.audit(page_size=min(limit, 500)), limit))
    print_rows(rows, COLUMNS, as_json, "nobody has changed anything yet")
