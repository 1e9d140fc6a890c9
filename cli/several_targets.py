"""Finishes a command for each of several targets, and exits with one code."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import typer
from rich.text import Text

from mallorn.cli.terminal.output import print_error, print_json, stdout, table
from mallorn.core.errors import MallornError
from mallorn.wording.format_values import Column

T = TypeVar("T")
Body = Mapping[str, object]  # for --json


def finish_each(
    items: Mapping[str, T],
    finish: Callable[[str, T], Body],
    as_json: bool,
    body_of: Callable[[T], Body] = lambda _: {},
    columns: Sequence[Column[T]] = (),
) -> None:
    """Finish each target's item below its name, then print a table with `columns`, or JSON.

    After an error, whose JSON has what `body_of` returns, it goes on with the next item.
    Exits with the code of the first error.
    """
    bodies: list[Body] = []
    exit_code = 0
    for name, item in items.items():
        if not as_json:
            stdout().print(Text(name, style="bold"))
        try:
            body = finish(name, item)
        except MallornError as error:
            if not as_json:
                print_error(f"{name}: {error.message}", error.hint)
            body = {**body_of(item), "failure": error.message, "hint": error.hint}
            exit_code = exit_code or error.exit_code
        bodies.append({"target_name": name, **body})
    if as_json:
        print_json(bodies)
    elif columns:
        stdout().print(table(items.values(), columns))
    if exit_code:
        raise typer.Exit(exit_code)
