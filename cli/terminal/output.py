"""What every command prints with: data on stdout, everything else on stderr."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar, cast

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mallorn.core.errors import Unavailable
from mallorn.core.settings import Settings
from mallorn.wording.format_values import Cell, Column, cell
from stack.data_directory import DataDir

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from mallorn.client import Client


T = TypeVar("T")
_MOVING: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PIPE_WIDTH: Final = 1000  # a reader that is a program wants a row a line
JsonOption = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its beginning.")]
NewestJobArgument = Annotated[
    str | None, typer.Argument(metavar="[JOB]", help="The job's id, or its beginning; default: the newest.")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="MALLORN_URL", help="The coordinator; default: this machine's.")
]
KeyOption = Annotated[
    str | None, typer.Option("--api-key", envvar="MALLORN_API_KEY", help="The key to present to it.")
]


class Address(NamedTuple):
    """The coordinator that a command asks."""

    url: UrlOption = None
    api_key: KeyOption = None


class Place(NamedTuple):
    """The coordinator that a command asks, or the data directory of the service on this machine."""

    url: UrlOption = None
    api_key: KeyOption = None
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Where the service on this machine keeps its data.  [MALLORN_DATA_DIR]"),
    ] = None


def stdout() -> Console:
    """A console for data; not kept, so that it follows a redirected sys.stdout."""
    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout, highlight=False, soft_wrap=not is_terminal, width=None if is_terminal else PIPE_WIDTH
    )


def stderr() -> Console:
    """A console for progress and errors."""
    return Console(file=sys.stderr, highlight=False)


def client(url: str | None, api_key: str | None, data: Path | None = None) -> "Client":
    """A client of the coordinator that is named, else of the stack that runs on the data directory.

    Raises Unavailable when a directory was given on which no stack runs.
    """
    from mallorn.client import Client  # no part of the service needs its imports

    directory = DataDir((data or Settings().data_dir).expanduser().absolute())
    stack = None if url else directory.running_stack()
    if url is None and stack is None and data is not None:
        raise Unavailable(
            f"no service runs on {directory.path}", hint=f"mallorn up --port 0 --data {directory.path}"
        )
    return Client(stack.url if stack else url, api_key)


def print_error(message: str, hint: str = "") -> None:
    """What happened, and the next command to type."""
    console = stderr()
    console.print(f"[bold red]error:[/] {_shown(message)}", soft_wrap=True)
    if hint:
        print_next(hint)


def print_next(command: str) -> None:
    """The command to type next."""
    stderr().print(f"[bold]next:[/]  {_shown(command)}", soft_wrap=True)


def print_note(text: str) -> None:
    """A line for the person at the terminal, kept out of the data."""
    stderr().print(_shown(text), soft_wrap=True)


def _shown(text: str) -> str:
    """Text as it stands: strangers' words in it style nothing, and move no cursor."""
    return escape(_MOVING.sub(lambda found: ascii(found[0])[1:-1], text))


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")


def print_json_line(value: object) -> None:
    """One JSON document a line, flushed, for a reader that follows along."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    """What was said, of values that were read; the fields, of what is put together here."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    return {each.name: getattr(value, each.name) for each in fields(cast("DataclassInstance", value))}


def print_rows(rows: Sequence[T], columns: Sequence[Column[T]], as_json: bool, empty: str) -> None:
    """Values as JSON or as a table; none at all get words and a next step."""
    if as_json:
        print_json(list(rows))
    elif rows:
        stdout().print(table(rows, columns))
    else:
        print_note(empty)


SHORT: Final = 20  # what is no longer is never broken


def table(values: Iterable[T], columns: Sequence[Column[T]]) -> Table:
    """A plain table; columns of numbers stand to the right, only columns of long texts are broken."""
    lines = [[column.of(value) for column in columns] for value in values]
    result = Table(box=None, header_style="bold", pad_edge=False)
    for at, column in enumerate(columns):
        cells = [line[at] for line in lines]
        numeric = any(isinstance(each, int | float) for each in cells)
        result.add_column(
            column.heading,
            justify="right" if numeric else "left",
            overflow="ellipsis" if column.cut else "fold",
            no_wrap=all(len(cell(each)) <= SHORT for each in cells),
        )
    for line in lines:
        result.add_row(*(escape(cell(each)) for each in line))
    return result


def fact_table(title: str, value: str, facts: Mapping[str, Cell]) -> Table:
    """Names and values; what is empty is left out."""
    known = [(name, each) for name, each in facts.items() if each not in (None, "")]
    columns = (
        Column[tuple[str, Cell]](title, lambda fact: fact[0]),
        Column[tuple[str, Cell]](value, lambda fact: fact[1]),
    )
    return table(known, columns)
