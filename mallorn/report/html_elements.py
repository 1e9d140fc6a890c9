"""HTML builder that escapes all texts, except HTML that it built itself."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, TypeVar

from mallorn.wording.format_values import Cell, Column, cell

T = TypeVar("T")
VOID: Final = frozenset({"meta"})
Child = Any  # text, number, Html, None (nothing), or an iterable of these


class Html(str):
    """Text that is HTML already. Only this module and constants of ours may create it."""

    __slots__ = ()


def el(tag: str, /, *children: Child, **attributes: Any) -> Html:
    """Return an HTML element; `aria_label="y"` becomes aria-label="y"; None is omitted."""
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    text = "".join(f' {key}="{escape(str(value))}"' for key, value in pairs if value is not None)
    return Html(f"<{tag}{text}>" if tag in VOID else f"<{tag}{text}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Concatenate the HTML of all children."""
    texts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            texts.append(child)
        elif isinstance(child, Iterable) and not isinstance(child, str):
            texts.append(join(child))
        elif child is not None:
            texts.append(escape(str(child)))
    return Html("".join(texts))


def table(values: Iterable[T], columns: Sequence[Column[T]]) -> Html:
    """Return a table with one row per value; columns with numbers are right-aligned."""
    rows = [[column.of(value) for column in columns] for value in values]
    heads: list[Html] = []
    for index, column in enumerate(columns):
        class_ = _cell_class([line[index] for line in rows])
        heads.append(el("th", column.heading.replace("\n", " "), scope="col", class_=class_))
    body = []
    for line in rows:
        texts = (value if isinstance(value, Html) else cell(value) for value in line)
        pairs = zip(texts, line, strict=True)
        body.append(el("tr", (el("td", text, class_=_cell_class([value])) for text, value in pairs)))
    element = el("table", el("thead", el("tr", heads)), el("tbody", body))
    return el("div", element, class_="wide", tabindex=0)  # focusable, to scroll by keyboard


def _cell_class(cells: Iterable[Cell]) -> str | None:
    return "number" if any(isinstance(value, int | float) for value in cells) else None


def render_facts(values: Mapping[str, Cell]) -> Html:
    """Return a description list (dl) of names and values, without empty values."""
    pairs = ((name, value) for name, value in values.items() if value not in (None, ""))
    return el("dl", (el("div", el("dt", name), el("dd", value)) for name, value in pairs))
