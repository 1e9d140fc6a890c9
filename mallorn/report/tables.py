"""Tables of values, with the columns that a terminal shows too."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from mallorn.report.html import Html, el
from mallorn.wording.columns import Cell, Column
from mallorn.wording.units import cell

T = TypeVar("T")


def table(values: Iterable[T], columns: Sequence[Column[T]]) -> Html:
    """One line a value; numbers stand to the right."""
    lines = [[column.of(value) for column in columns] for value in values]
    heads = [
        el("th", column.heading.replace("\n", " "), scope="col", class_=_side([line[at] for line in lines]))
        for at, column in enumerate(columns)
    ]
    body = (el("tr", (el("td", _shown(each), class_=_side([each])) for each in line)) for line in lines)
    whole = el("table", el("thead", el("tr", heads)), el("tbody", body))
    return el("div", whole, class_="wide", tabindex=0)  # wider than the page, it scrolls by keyboard, too


def _side(cells: Iterable[Cell]) -> str | None:
    return "number" if any(isinstance(each, int | float) for each in cells) else None


def _shown(value: Cell) -> str:
    return value if isinstance(value, Html) else cell(value)


def facts(known: Mapping[str, Cell]) -> Html:
    """Names and values; what is empty is left out."""
    pairs = ((name, value) for name, value in known.items() if value not in (None, ""))
    return el("dl", (el("div", el("dt", name), el("dd", value)) for name, value in pairs))
