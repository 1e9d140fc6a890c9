"""Markdown tables and the rule that everything has a description."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

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


def schema_type(schema: Mapping[str, Any]) -> str:
    """The type of a JSON schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(schema_type(variant) for variant in variants)
    if values := schema.get("enum"):
        return ", ".join(f'"{value}"' for value in values)
    if schema.get("type") == "array":
        return f"list of {schema_type(schema.get('items', {}))}"
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict):
        return f"object of {schema_type(inner)}"
    return str(schema.get("type", "any"))
