"""An error's docstring is its message, which users meet and search for: none changes unnoticed."""

import ast
from pathlib import Path
from typing import Final

from benchmarks.house_tree import RESEARCH, ROOMS
from mallorn.core.errors import MallornError
from tests.fixtures.kept import Kept

ROOT: Final = Path(__file__).parents[3]


def _messages() -> dict[str, str]:
    """What every MallornError of the product says where it is told nothing, by its name."""
    files = (file for room in (*ROOMS, RESEARCH) for file in (ROOT / room).rglob("*.py"))
    trees = [ast.parse(file.read_text()) for file in files]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    errors = {MallornError.__name__}
    while more := {c.name for c in classes if errors & _bases(c)} - errors:
        errors |= more
    # Another class may have the name of an error.
    ours = [c for c in classes if c.name == MallornError.__name__ or errors & _bases(c)]
    told = {c.name: ast.get_docstring(c) or "" for c in ours}
    return {name: told[name].partition("\n")[0] for name in sorted(told)}


def _bases(found: ast.ClassDef) -> set[str]:
    return {ast.unparse(base) for base in found.bases}


def test_the_messages_of_errors_are_those_that_were_agreed_on(kept: Kept) -> None:
    kept("error-messages", _messages())
