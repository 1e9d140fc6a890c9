"""How large a tree is, how long its lines are, what its pages and module names say.

- product lines: of all files of the product.
- page lines: TypeScript and CSS of the web page, without types that are generated (`.d.ts`).
- line length: of lines that are neither empty nor of an import, in characters, without the end of the line: a
  module's longer name makes no code denser.
- words of prose: README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/**/*.md, without decisions (docs/adr),
  results (docs/results), generated pages (docs/reference) and blocks of code, fenced or indented. A word has
  a letter: figures and bars of tables are none.
- banned names: modules named by a word that the budget file bans.
"""

import ast
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.house_tree import Tree

PAGE: Final = "services/dashboard/web/src"
PAGES: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
NO_PROSE: Final = {"adr", "results", "reference"}
FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
INDENTED: Final = re.compile(r"(?<=\n\n)(?: {4}.*\n+)+")
WORD: Final = re.compile(r"\S*[A-Za-z]\S*")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a tree, and where it comes from, the largest first."""

    value: float
    places: list[str] = field(default_factory=list)


def measure(tree: Tree) -> dict[str, Figure]:
    """All sizes by name."""
    page = {
        file: text.count("\n")
        for file, text in _texts(tree.root, *(f"{PAGE}/**/*.{kind}" for kind in ("ts", "tsx", "css")))
        if not file.endswith(".d.ts")
    }
    product = {tree.file(name): len(text.splitlines()) for name, text in tree.texts.items()}
    return {
        "product lines": _total(product),
        "page lines": _total(page),
        "words of prose": _total({file: words_of(text) for file, text in prose_pages(tree.root)}),
        "90th percentile of line length": _long_lines(line_lengths(tree)),
    }


def line_lengths(tree: Tree) -> list[tuple[int, str]]:
    """Length and place of each line that is neither empty nor of an import."""
    return [
        (len(line), f"{tree.file(name)}:{number}")
        for name, text in tree.texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and number not in _imports(tree.modules[name])
    ]


@cache
def _imports(module: ast.Module) -> frozenset[int]:
    """Numbers of the lines of imports."""
    found = (node for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom))
    return frozenset(number for node in found for number in range(node.lineno, (node.end_lineno or 0) + 1))


def prose_pages(root: Path) -> list[tuple[str, str]]:
    """Pages that people read, with their text."""
    found = _texts(root, *PAGES, "docs/**/*.md")
    return [(file, text) for file, text in found if not NO_PROSE & set(Path(file).parts)]


def words_of(page: str) -> int:
    """Number of words outside of blocks of code."""
    return len(WORD.findall(INDENTED.sub("", FENCED.sub("", page))))


def banned_modules(tree: Tree, banned: Collection[str]) -> list[str]:
    """Files that are named by a banned word."""
    return sorted(tree.file(name) for name in tree.modules if name.rpartition(".")[2] in banned)


def _long_lines(found: list[tuple[int, str]]) -> Figure:
    ordered = sorted(found, key=lambda each: -each[0])
    places = [f"{place} ({length} characters)" for length, place in ordered]
    return Figure(ordered[len(ordered) // 10][0] if ordered else 0, places)


def _total(sizes: dict[str, int]) -> Figure:
    ordered = sorted(sizes.items(), key=lambda each: (-each[1], each[0]))
    return Figure(sum(sizes.values()), [f"{file} ({size})" for file, size in ordered])


def _texts(root: Path, *patterns: str) -> Iterable[tuple[str, str]]:
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    return [(path.relative_to(root).as_posix(), path.read_text()) for path in paths]
