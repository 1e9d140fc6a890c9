"""Tables of rows, with headings by key as on the terminal."""

from collections.abc import Iterable, Mapping
from typing import Any

from mallorn.commands.output import cell
from mallorn.report.html import Html, el


def table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Html:
    """One column a key of `columns`; numbers stand to the right."""
    heads = (el("th", heading.replace("\n", " "), scope="col") for heading in columns.values())
    lines = (el("tr", (_cell(row.get(key)) for key in columns)) for row in rows)
    return el("div", el("table", el("thead", el("tr", heads)), el("tbody", lines)), class_="wide")


def _cell(value: Any) -> Html:
    if isinstance(value, Html):
        return el("td", value)
    return el("td", cell(value), class_="number" if isinstance(value, int | float) else None)


def facts(known: Mapping[str, Any]) -> Html:
    """Names and values; what is empty is left out."""
    pairs = ((name, value) for name, value in known.items() if value not in (None, ""))
    return el("dl", (el("div", el("dt", name), el("dd", value)) for name, value in pairs))
