"""Tables on a terminal, of values and of facts."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar, cast

from rich.markup import escape
from rich.table import Table

from mallorn.wording.format_values import Cell, Column, cell

T = TypeVar("T")
SHORT: Final = 20  # what is no longer is never broken


def table(values: Iterable[T], columns: Sequence[Column[T]] | Mapping[str, str]) -> Table:
    """A plain table; columns of numbers stand to the right, only columns of long texts are broken.

    Of mappings, a column is a key and its heading.
    """
    shown = keyed(columns) if isinstance(columns, Mapping) else columns
    lines = [[column.of(cast(Any, value)) for column in shown] for value in values]
    result = Table(box=None, header_style="bold", pad_edge=False)
    for at, column in enumerate(shown):
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


def keyed(columns: Mapping[str, str]) -> list[Column[Any]]:
    """Columns of mappings: key and heading."""
    return [Column(heading, itemgetter(key)) for key, heading in columns.items()]


def fact_table(title: str, value: str, facts: Mapping[str, Cell]) -> Table:
    """Names and values; what is empty is left out."""
    known = [(name, each) for name, each in facts.items() if each not in (None, "")]
    columns = (
        Column[tuple[str, Cell]](title, lambda fact: fact[0]),
        Column[tuple[str, Cell]](value, lambda fact: fact[1]),
    )
    return table(known, columns)
