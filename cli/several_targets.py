"""One table, or one JSON list, of what a command did for several targets."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import TypeVar

import typer

from mallorn.cli.terminal.output import print_error, print_json, stdout, table
from mallorn.core.errors import MallornError
from mallorn.wording.format_values import Column

T = TypeVar("T")
Row = dict[str, str]  # cells by the headings of their columns; the first one is RESULT
Body = Mapping[str, object]  # for --json


def finish_each(
    targets: Mapping[str, T],
    finish: Callable[[str, T], tuple[Row, Body]],
    as_json: bool,
    body_of: Callable[[T], Body] = lambda _: {},
) -> None:
    """Finish each target and print the results. After an error, go on with the next target.

    `body_of` returns what --json prints also after an error. Exits with the code of the first error.
    """
    rows: list[Row] = []
    bodies: list[Body] = []
    exit_code = 0
    for name, item in targets.items():
        try:
            row, body = finish(name, item)
        except MallornError as error:
            if not as_json:
                print_error(f"{name}: {error.message}", error.hint)
            failure = {"error": error.message, "hint": error.hint}
            row, body = {"RESULT": error.headline}, {**body_of(item), **failure}
            exit_code = exit_code or error.exit_code
        rows.append({"TARGET": name, **row})
        bodies.append({"target_name": name, **body})
    if as_json:
        print_json(bodies)
    else:
        empty = dict.fromkeys((heading for row in rows for heading in row), "-")
        columns = [Column[Row](heading, itemgetter(heading)) for heading in empty]
        stdout().print(table([empty | row for row in rows], columns))
    if exit_code:
        raise typer.Exit(exit_code)
