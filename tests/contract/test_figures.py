"""Figures of pages have their raw data and the command that made them, and say what these say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cli.costmodels import BEHIND
from tests.fixtures.command_line import ROOT

RESULTS: Final = ROOT / "docs" / "results"
LEARN_NOTHING: Final = {"draft", "random", "scrambled"}
# Their figures are printed by what a test types, or belong to what they are kept of.
OTHERS: Final = {"adr", "reference", "results", "first-hours"}
PAGES: Final = [
    page
    for page in (ROOT / "README.md", ROOT / "benchmarks/README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not OTHERS & set(page.relative_to(ROOT).parts)
]
TABLE: Final = re.compile(r"(?:^ *\|.*\n)+", re.MULTILINE)
# A cell that begins with a measured number: 1.23, 45 ms (0.9), 12 %.
MEASURED: Final = re.compile(r"\| *[*(]*(?:[\d,]*\.\d+(?!\.\d)|[\d,.]+ (?:ms|us|s|GB|GFLOP/s|%))")
COMMAND: Final = re.compile(r"python -m (benchmarks(?:\.\w+)*)")
RAW: Final = re.compile(r"\]\((?:\.\./)*(?:docs/)?(?:results/|benchmarks/data/)")
TEST: Final = re.compile(r"`(?:pytest )?tests/|python -m tests\.")
#: How often a page may say that figures were measured without raw ones being kept: it may become less.
NOT_KEPT: Final = {"models.md": 1, "performance.md": 1}
LOST: Final = re.compile(
    r"[Rr]aw figures (?:of it )?(?:are|were) (?:not )?kept|no raw figures of it are kept"
)


def tables(page: str) -> Iterator[tuple[str, str]]:
    """Tables with measured numbers, each with the text of its section."""
    for section in re.split(r"^(?=##+ )", page, flags=re.MULTILINE):
        for table in TABLE.findall(section):
            if len(MEASURED.findall(table.replace(" | ", " || "))) > 2:
                yield table, section


def without_source(page: str) -> list[str]:
    """The first lines of tables that name no raw file, no benchmark and no test."""
    marks = (RAW, COMMAND, TEST, LOST)
    return [
        table.splitlines()[0]
        for table, section in tables(page)
        if not any(mark.search(section) for mark in marks)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_of_figures_has_its_raw_data_or_the_command_that_made_it(page: Path) -> None:
    assert without_source(page.read_text()) == []


BARE = """## Speed

| model | ours | theirs |
|---|---|---|
| mlp | 1.2 ms (0.9) | 1.4 ms |
| vit | 10 ms | 11 ms |
"""


@pytest.mark.parametrize("source", ["[raw](results/a.json)", "`python -m benchmarks.latency`"])
def test_a_table_without_a_source_is_found(source: str) -> None:
    assert without_source(BARE) == ["| model | ours | theirs |"]
    assert without_source(f"{BARE}\n{source}\n") == []
    assert without_source(f"{BARE}\n## Another section\n\n{source}\n") != []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_benchmark_that_a_page_names_exists(page: Path) -> None:
    named = {name.replace(".", "/") for name in COMMAND.findall(page.read_text())}
    assert [name for name in named if not (ROOT / f"{name}.py").exists() and not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_without_raw_data_become_fewer(page: Path) -> None:
    assert len(LOST.findall(page.read_text())) <= NOT_KEPT.get(page.name, 0)


def test_tables_of_figures_are_found() -> None:
    assert sum(1 for page in PAGES for _ in tables(page.read_text())) > 30


def test_cost_models_that_are_called_behind_are_behind_on_every_split() -> None:
    splits = json.loads((RESULTS / "costmodels.json").read_text())["splits"].values()
    pairs = [{name: run["figures"]["pairwise"]["mean"] for name, run in split.items()} for split in splits]
    behind = {name for name in pairs[0] if all(split[name] < split["metaschedule"] for split in pairs)}
    assert behind - LEARN_NOTHING == BEHIND
