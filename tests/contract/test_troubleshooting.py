"""docs/troubleshooting.md shows messages as the product prints them: `...` stands for what differs."""

import ast
import re
from functools import cache
from typing import Final

import pytest

from benchmarks.house_tree import Tree
from tests.fixtures.command_line import ROOT

PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text()
#: Messages are the second-level headings in quotes and the first cells of tables, in backticks.
MESSAGES: Final = sorted(
    {message for row in re.findall(r"^\| (`.*?`) \|", PAGE, re.M) for message in re.findall(r"`(.*?)`", row)}
)
SHORT: Final = 4  # a piece with fewer characters could stand anywhere


@cache
def strings() -> str:
    """All texts in the product's source, with adjacent literals joined; values stand as a line break."""
    nodes = (node for module in Tree(ROOT).modules.values() for node in ast.walk(module))
    return "\n".join(text for node in nodes if (text := _text(node)))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "\n" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def pieces(message: str) -> list[str]:
    return [piece for piece in message.split("...") if len(piece.strip()) >= SHORT]


def test_the_page_shows_messages() -> None:
    assert len(MESSAGES) > 20


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_on_the_page_is_one_that_the_product_prints(message: str) -> None:
    assert pieces(message), "nothing to look for"
    assert [piece for piece in pieces(message) if piece.strip() not in strings()] == []
