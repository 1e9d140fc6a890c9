"""Builds HTML from texts that are all escaped, but for what was built here."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, TypeVar

from mallorn.wording.format_values import Cell, Column, cell

T = TypeVar("T")
VOID: Final = frozenset({"meta"})
Child = Any  # a text or a number, Html, None (nothing), or an iterable of such


class Html(str):
    """Text that is markup already. Only `el` and constants of ours may make it."""

    __slots__ = ()


def el(tag: str, /, *children: Child, **attributes: Any) -> Html:
    """An element: `class_="x"` and `aria_label="y"` are class="x" and aria-label="y", None leaves out."""
    known = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    words = "".join(f' {key}="{escape(str(value))}"' for key, value in known if value is not None)
    return Html(f"<{tag}{words}>" if tag in VOID else f"<{tag}{words}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """All of them, one after the other."""
    return Html("".join(_text(child) for child in children))


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, Iterable) and not isinstance(child, str):
        return join(child)
    return escape(str(child))


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
