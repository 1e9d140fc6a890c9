"""The glossary names types that exist, and is where readers look for it."""

import ast
import re

import pytest

from tests.fixtures.command_line import ROOT

PAGE = (ROOT / "docs" / "glossary.md").read_text()
TYPES = sorted(set(re.findall(r"`((?:[a-z_]+\.)+[A-Z]\w+)`", PAGE)))


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_the_glossary_exists(name: str) -> None:
    module, _, type_name = name.rpartition(".")
    root = ROOT / "research" if module.startswith("mallorn_research.") else ROOT
    tree = ast.parse((root / f"{module.replace('.', '/')}.py").read_text())
    assert type_name in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def test_every_word_is_a_line_with_its_type() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.splitlines() if line.startswith("| ")]
    words = [row for row in rows if len(row) == 3 and row[0].strip() != "word"]
    assert len(words) > 20
    assert [word for word, _, types in words if not re.search(r"`[a-z_.]+\.[A-Z]\w+`", types)] == []


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_those_who_read_and_change_code_are_led_to_it(page: str) -> None:
    assert "docs/glossary.md" in (ROOT / page).read_text()
