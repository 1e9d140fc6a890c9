"""Markdown tables and the rule that everything has a description."""

from collections.abc import Iterable, Sequence
from typing import Final

from mallorn.core.errors import MallornError

COMMAND: Final = "python -m tests.contract.reference docs/reference"
NOTE: Final = f"<!-- generated: {COMMAND} -->"


class Undescribed(MallornError):
    """Something that users meet has no description."""


def described(what: str, text: str | None) -> str:
    """The description in one line. Raises Undescribed."""
    words = " ".join((text or "").split())
    if not words:
        raise Undescribed(f"{what} has no description", hint=f"describe it in the code, then   {COMMAND}")
    return words


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table, and an empty one."""
    lines = [_row(headings), _row(["---"] * len(headings)), *map(_row, rows)]
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def code(text: object) -> str:
    """As code; nothing stays nothing."""
    return f"`{text}`" if str(text) else ""


def page(title: str, *lines: str) -> str:
    """A whole page."""
    return "\n".join([f"# {title}", "", NOTE, "", *lines]).rstrip() + "\n"
