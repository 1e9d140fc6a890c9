"""Printing for all commands: data to stdout, everything else to stderr."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar, cast

import typer
from pydantic import BaseModel
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.format_text import escape_control_characters
from mallorn.core.settings import Settings
from mallorn.stack.data_directory import DataDir
from mallorn.wording.format_values import Cell, Column, cell

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from mallorn.client.coordinator_client import Client

T = TypeVar("T")
PIPE_WIDTH: Final = 1000  # keeps each row on one line for programs that read them
JsonOption = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its beginning.")]
NewestJobArgument = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="The job's id, or its beginning; default: the newest.")
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="MALLORN_URL",
        help="The coordinator; default: that of `mallorn login`, else this machine's.",
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--api-key", envvar="MALLORN_API_KEY", help="The key to present to it.")
]
SHORT: Final = 20  # columns of texts up to this length are not wrapped


class Address(NamedTuple):
    """URL and API key of the coordinator that a command calls."""

    url: UrlOption = None
    api_key: KeyOption = None


class Place(NamedTuple):
    """Coordinator that a command calls, or the data directory of the service here."""

    url: UrlOption = None
    api_key: KeyOption = None
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Where the service on this machine keeps its data.  [MALLORN_DATA_DIR]"),
    ] = None

    @property
    def data_option(self) -> str:
        """Option that names the same data directory to the next command; may be empty."""
        return f" --data {self.data}" if self.data else ""


class LiteralConsole(Console):
    """Console that prints text literally: no markup, and control characters escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of whatever is printed, also of tables and live views."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape_control_characters(segment.text)
            yield segment._replace(text=text)


def stdout() -> Console:
    """Return a new console for data at each call: sys.stdout may have been redirected."""
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else PIPE_WIDTH
    return LiteralConsole(file=sys.stdout, soft_wrap=not is_terminal, width=width)


def stderr() -> Console:
    """Return a console for progress and errors."""
    return LiteralConsole(file=sys.stderr)


def client(url: str | None, api_key: str | None, data: Path | None = None) -> "Client":
    """Return a client of the coordinator at `url`, else of the service on a data directory.
    Raises Unavailable if `data` is given and no service runs on it."""
    from mallorn.client.coordinator_client import Client  # parts of the service do not need its imports

    directory = DataDir((data or Settings().data_dir).expanduser().absolute())
    stack = None if url else directory.read_running_stack()
    if url is None and stack is None and data is not None:
        message = f"no service runs on {directory.path}"
        raise Unavailable(message, hint=f"mallorn up --port 0 --data {directory.path}")
    return Client(stack.url if stack else url, api_key)


def print_error(message: str, hint: str = "") -> None:
    """Print an error message and, if there is one, the next command to type."""
    print_note(message, "error: ", "bold red")
    if hint:
        print_next(hint)


def print_next(command: str) -> None:
    """Print the command to type next."""
    print_note(command, "next:  ", "bold")


def print_note(text: str, label: str = "", style: str = "") -> None:
    """Print a line for the user on stderr, separate from the data."""
    line = Text.assemble((label, style), escape_control_characters(text))
    stderr().print(line, soft_wrap=True)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")


def print_json_line(value: object) -> None:
    """Print a JSON document on one line and flush, for programs that read the output live."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    """Convert a pydantic value (fields that were set) or a dataclass to a dict for JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    return {field.name: getattr(value, field.name) for field in fields(cast("DataclassInstance", value))}


def print_rows(rows: Sequence[T], columns: Sequence[Column[T]], as_json: bool, empty: str) -> None:
    """Print rows as JSON or as a table; if there are none, print the note `empty`."""
    if as_json:
        print_json(list(rows))
    elif rows:
        stdout().print(table(rows, columns))
    else:
        print_note(empty)


def key_columns(**headings: str) -> list[Column[Any]]:
    """Return a column for each of these keys of rows that are dictionaries."""
    return [Column[Any](heading, itemgetter(key)) for key, heading in headings.items()]


def table(values: Iterable[T], columns: Sequence[Column[T]]) -> Table:
    """Return a table without borders; numbers align right, and long texts wrap."""
    lines = [[column.of(value) for column in columns] for value in values]
    result = Table(box=None, header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        cells = [line[i] for line in lines]
        is_numeric = any(isinstance(value, int | float) for value in cells)
        result.add_column(
            column.heading,
            justify="right" if is_numeric else "left",
            overflow="ellipsis" if column.cut else "fold",
            no_wrap=all(len(cell(value)) <= SHORT for value in cells),
        )
    for line in lines:
        result.add_row(*(Text(escape_control_characters(cell(value))) for value in line))
    return result


def fact_table(title: str, value: str, facts: Mapping[str, Cell]) -> Table:
    """Return a table of names and values, without those that are empty."""
    rows = [(name, fact) for name, fact in facts.items() if fact not in (None, "")]
    columns = [Column[tuple[str, Cell]](heading, itemgetter(i)) for i, heading in enumerate((title, value))]
    return table(rows, columns)


def confirm_or_exit(question: str, without_asking: str, yes: bool) -> None:
    """Exit with code 1 unless the user agrees. Raises InvalidRequest without a terminal."""
    if yes:
        return
    if not can_ask_user():
        raise InvalidRequest("no terminal can ask for confirmation; nothing was changed", hint=without_asking)
    if not typer.confirm(escape_control_characters(question), err=True):
        print_note("nothing was changed")
        raise typer.Exit(1)


def can_ask_user() -> bool:
    """Return whether stdin is a terminal, so that a user can answer."""
    return sys.stdin.isatty()
