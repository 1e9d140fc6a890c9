"""The modules of the product in a checkout, parsed."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOMS: Final = (
    "mallorn",
    "cli",
    "stack",
    "services",
    "workers",
    "searchers",
    "research",
    "costmodels",
    "graphc",
    "db",
)
MOST_LINES: Final = 4  # of a small helper
LEFT_OUT: Final = {"migrations", "node_modules"}


class Tree:
    """What the rules of `benchmarks.house` count, by the dotted names of modules."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths = {_name(path.relative_to(root)): path for path in _files(root)}
        self.texts = {name: path.read_text() for name, path in self._paths.items()}
        self.modules = {name: ast.parse(text) for name, text in self.texts.items()}
        self.lines = sum(len(text.splitlines()) for text in self.texts.values())

    @property
    def classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        """Those at the top of a module, with its name."""
        for name, module in self.modules.items():
            yield from ((name, node) for node in module.body if isinstance(node, ast.ClassDef))

    def file(self, module: str) -> str:
        """Its path from the root on."""
        return self._paths[module].relative_to(self.root).as_posix()

    def folder(self, module: str) -> str:
        """Where it lies; a package lies in its own folder."""
        return self._paths[module].parent.relative_to(self.root).as_posix()

    def imports(self, module: ast.Module) -> Iterator[str]:
        """The product's modules that are imported, wherever in the file."""
        yield from (name for _, name in self.import_lines(module))

    def import_lines(self, module: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
        """Each import of a module of the product."""
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                whole = (f"{node.module}.{alias.name}" for alias in node.names)
                named = {name if name in self.modules else node.module for name in whole}
                yield from ((node, name) for name in sorted(named & self.modules.keys()))


def _files(root: Path) -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            if not LEFT_OUT & set(path.relative_to(root).parts):
                yield path


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")
