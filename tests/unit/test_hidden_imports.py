"""No import of another room hides in a string, where import-linter does not see it."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from benchmarks.house_tree import ROOMS

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = re.compile(r"mallorn(\.\w+)*(:\w+)?")
BY_NAME: Final = frozenset({"import_module", "__import__", "run_module", "find_spec"})
#: Files whose strings may name modules of other rooms.
EXCEPTIONS: Final = {
    "mallorn/__main__.py": "an entry point, like the console script of pyproject.toml",
    "mallorn/core/registry.py": "names that users choose",
    "stack/run_stack.py": "modules that are loaded before the stack's parts are forked; it may import them",
    "graphc/core/graph_kind.py": "a table by kind of target: exports have no registry",
    "kinds/cpu_compiler.py": "modules that register instructions, which workers import",
}


def hidden_imports(path: str, source: str) -> Iterator[str]:
    """Yield the strings of a file that imports by name and that name modules of other rooms."""
    if path in EXCEPTIONS:
        return
    nodes = list(ast.walk(ast.parse(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _function_name(node) in BY_NAME]
    arguments = [argument for call in calls for argument in call.args]
    for node in nodes if calls else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            parts = node.value.partition(":")[0].split(".")
            module = ROOT.joinpath(*parts)
            is_module = module.is_dir() or module.with_suffix(".py").is_file()
            names_module = is_module and ("." in node.value or node in arguments)
            if names_module and room_of(parts[1:]) != room_of(path.split("/")):
                yield f"{path}:{node.lineno} {node.value}"


def room_of(parts: Sequence[str]) -> str:
    """Return the folder of the repository to which a path or the rest of a module's name belongs."""
    return parts[0] if parts and parts[0] in ROOMS else "mallorn"


def _function_name(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def test_no_import_of_another_room_hides_in_a_string() -> None:
    files = [file for room in ROOMS for file in sorted((ROOT / room).rglob("*.py"))]
    hidden = [
        place
        for file in files
        for place in hidden_imports(file.relative_to(ROOT).as_posix(), file.read_text())
        if "node_modules" not in file.parts
    ]
    assert hidden == []


@pytest.mark.parametrize(
    "source",
    [
        'from importlib import import_module\nimport_module("mallorn.cli.jobs")',
        'import importlib\nNAME = "mallorn.cli.jobs:app"\nimportlib.import_module(NAME.partition(":")[0])',
        'import runpy\nrunpy.run_module("mallorn.cli", run_name="__main__")',
    ],
)
def test_a_hidden_import_is_found(source: str) -> None:
    assert list(hidden_imports("mallorn/a.py", source))


def test_names_of_its_own_room_are_no_hidden_import() -> None:
    source = 'from importlib import import_module\nimport_module("mallorn.client.job")'
    assert not list(hidden_imports("mallorn/a.py", source))
