"""Size figures of a checkout: lines, line length, words of prose.

- product lines: lines of all product files.
- service lines: those without mallorn-research.
- page lines: lines of TypeScript and CSS of the web page, without generated types (`.d.ts`).
- line length: characters of lines that are neither empty nor begin an import.
- words of prose: README.md, ARCHITECTURE.md, CONTRIBUTING.md and docs/**/*.md, without docs/adr,
  docs/results, docs/reference and code blocks, fenced or indented. A word contains a letter: numbers
  and table borders do not count.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.house_tree import RESEARCH, Tree

PAGE: Final = "services/dashboard/web/src"
PAGES: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
NO_PROSE: Final = {"adr", "results", "reference"}
FENCED: Final = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
INDENTED: Final = re.compile(r"(?<=\n\n)(?: {4}.*\n+)+")
WORD: Final = re.compile(r"\S*[A-Za-z]\S*")


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a checkout, and the places that it counts, largest first."""

    value: float
    places: list[str] = field(default_factory=list)


def measure(tree: Tree) -> dict[str, Figure]:
    """Return all size figures by name."""
    page = {
        file: text.count("\n")
        for file, text in _texts(tree.root, *(f"{PAGE}/**/*.{kind}" for kind in ("ts", "tsx", "css")))
        if not file.endswith(".d.ts")
    }
    product = {tree.file(name): len(text.splitlines()) for name, text in tree.texts.items()}
    service = {file: size for file, size in product.items() if not file.startswith(RESEARCH)}
    return {
        "product lines": _total(product),
        "service lines": _total(service),
        "page lines": _total(page),
        "words of prose": _total({file: words_of(text) for file, text in prose_pages(tree.root)}),
        "90th percentile of line length": _line_lengths(tree),
    }


def prose_pages(root: Path) -> list[tuple[str, str]]:
    """Return the pages of prose with their texts."""
    pages = _texts(root, *PAGES, "docs/**/*.md")
    return [(file, text) for file, text in pages if not NO_PROSE & set(Path(file).parts)]


def words_of(page: str) -> int:
    """Count the words outside code blocks."""
    return len(WORD.findall(INDENTED.sub("", FENCED.sub("", page))))


def _line_lengths(tree: Tree) -> Figure:
    """Return the 90th percentile of the lines' lengths."""
    lines = [
        (len(line), f"{tree.file(name)}:{number} ({len(line)} characters)")
        for name, text in tree.texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.startswith(("from ", "import "))
    ]
    lines.sort(key=lambda each: -each[0])
    return Figure(lines[len(lines) // 10][0] if lines else 0, [place for _, place in lines])


def _total(sizes: dict[str, int]) -> Figure:
    ordered = sorted(sizes.items(), key=lambda each: (-each[1], each[0]))
    return Figure(sum(sizes.values()), [f"{file} ({size})" for file, size in ordered])


def _texts(root: Path, *patterns: str) -> Iterable[tuple[str, str]]:
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    return [(path.relative_to(root).as_posix(), path.read_text()) for path in paths]
