"""docs/guarantees.md names tests, laws and benchmarks that exist, and each guarantee has one."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.fixtures.command_line import ROOT

PAGE: Final = (ROOT / "docs" / "guarantees.md").read_text()
ROWS: Final = [
    line.strip("| \n").split(" | ")
    for table in re.findall(r"^\| guarantee \| shown by \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.M)
    for line in table.splitlines()
]
FILES: Final = sorted(set(re.findall(r"`((?:research/)?tests/[\w/]+\.py)`", PAGE)))
FUNCTIONS: Final = sorted(set(re.findall(r"`((?:test)?_\w+)`", PAGE)))
BENCHMARKS: Final = sorted(set(re.findall(r"python -m (benchmarks\.\w+|tests\.\w+)", PAGE)))


def test_the_page_holds_guarantees() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row[0])[:60])
def test_a_guarantee_is_shown_by_a_test_or_a_benchmark(row: list[str]) -> None:
    _, shown_by = row
    assert re.search(r"`(?:research/)?tests/[\w/]+\.py`|`(?:test)?_\w+`|`python -m benchmarks\.\w+", shown_by)


@pytest.mark.parametrize("file", FILES)
def test_a_test_file_on_the_page_exists(file: str) -> None:
    assert "def test_" in (ROOT / file).read_text()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_law_or_a_test_on_the_page_exists(name: str) -> None:
    folders = [ROOT / "tests", ROOT / "research" / "tests"]
    tests = (file for folder in folders for file in folder.rglob("test_*.py"))
    files = tests if name.startswith("test_") else [laws()]
    assert any(f"def {name}(" in file.read_text() for file in files)


@pytest.mark.parametrize("module", BENCHMARKS)
def test_a_command_on_the_page_has_its_module(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.is_dir() or path.with_suffix(".py").is_file()


def laws() -> Path:
    return ROOT / "tests" / "simulation" / "laws.py"
