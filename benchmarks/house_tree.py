"""Parsed modules of the product in a checkout."""

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
    "costmodels",
    "graphc",
    "kinds",
    "db",
)
RESEARCH: Final = "research/mallorn_research"
WHEELS: Final = (RESEARCH, "runtime/mallorn_runtime")  # packages that have wheels of their own
LEFT_OUT: Final = {"migrations", "node_modules"}


class Tree:
    """Texts and syntax trees of a checkout's modules, by dotted module name."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths = {_name(path.relative_to(root)): path for path in _files(root)}
        self.texts = {name: path.read_text() for name, path in self._paths.items()}
        self.modules = {name: ast.parse(text) for name, text in self.texts.items()}

    def file(self, module: str) -> str:
        """Return a module's path relative to the root."""
        return self._paths[module].relative_to(self.root).as_posix()

    def folder(self, module: str) -> str:
        """Return the folder that contains a module; for a package, its own folder."""
        return self._paths[module].parent.relative_to(self.root).as_posix()

    def imports(self, module: ast.Module) -> Iterator[str]:
        """Yield the product's modules that a module imports, also inside functions."""
        yield from (name for _, name in self.import_lines(module))

    def import_lines(self, module: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
        """Yield each import statement with the product module that it imports."""
        for node in ast.walk(module):
            if isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                full_names = (f"{node.module}.{alias.name}" for alias in node.names)
                named = {name if name in self.modules else node.module for name in full_names}
                yield from ((node, name) for name in sorted(named & self.modules.keys()))


def _files(root: Path) -> Iterator[Path]:
    for room in (*ROOMS, *WHEELS):
        for path in sorted((root / room).rglob("*.py")):
            if not LEFT_OUT & set(path.relative_to(root).parts):
                yield path


def _name(path: Path) -> str:
    """Return the name by which code imports a file: `mallorn` has links to the folders beside it."""
    parts = path.with_suffix("").parts
    if parts[0] in {Path(wheel).parts[0] for wheel in WHEELS}:
        return ".".join(parts[1:]).removesuffix(".__init__")
    return ".".join(parts if parts[0] == ROOMS[0] else (ROOMS[0], *parts)).removesuffix(".__init__")
