"""Tables of rows, with headings by key as on the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mallorn.report.html import Html, el
from mallorn.wording.units import cell


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Html:
    """One column a key of `columns`; numbers stand to the right."""
    rows = list(rows)
    heads = (_head(heading, [row.get(key) for row in rows]) for key, heading in columns.items())
    lines = (el("tr", (_cell(row.get(key)) for key in columns)) for row in rows)
    whole = el("table", el("thead", el("tr", heads)), el("tbody", lines))
    return el("div", whole, class_="wide", tabindex=0)  # wider than the page, it scrolls by keyboard, too


def _head(heading: str, values: Sequence[Any]) -> Html:
    numeric = any(isinstance(value, int | float) for value in values)
    return el("th", heading.replace("\n", " "), scope="col", class_="number" if numeric else None)


def _cell(value: Any) -> Html:
    if isinstance(value, Html):
        return el("td", value)
    return el("td", cell(value), class_="number" if isinstance(value, int | float) else None)


def facts(known: Mapping[str, Any]) -> Html:
    """Names and values; what is empty is left out."""
    pairs = ((name, value) for name, value in known.items() if value not in (None, ""))
    return el("dl", (el("div", el("dt", name), el("dd", value)) for name, value in pairs))
