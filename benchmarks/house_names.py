"""Figures on names, docstrings and fragments of a checkout.

- vague names: parameters and local variables whose name is a word that the budget file bans (participles,
  adverbs, pronouns); each counts once a function.
- fragment docstrings: docstrings whose first word is a pronoun, a preposition or a conjunction.
- stale names: names in docstrings, in backticks or in CamelCase, that no file of the checkout uses.
- files that name a stand-in: product files outside `research` whose text names a measurer without a device,
  or what only such a one reads. Searchers are left out: they have replay buffers.
- tuple splats: calls of a function or class of ours, none of which takes `*args`, with `*name` where the
  calling function assigned a tuple to that name.
"""

import ast
import builtins
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.house_calls import Function
from benchmarks.house_tree import Tree

# fmt: off
FRAGMENT: Final = {
    "also", "and", "as", "at", "because", "beside", "between", "but", "by", "for", "from", "how",
    "if", "in", "it", "its", "less", "more", "most", "nothing", "of", "on", "one", "or", "others",
    "since", "so", "such", "than", "that", "their", "them", "then", "these", "they", "this",
    "those", "to", "under", "until", "what", "when", "where", "which", "while", "who", "whom",
    "whose", "why", "with", "without",
}
# fmt: on
FOREIGN: Final = re.compile(r"``[^`]+``")  # names that are not ours
QUOTED: Final = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`(?!`)")
CAMEL: Final = re.compile(r"\b(?:[A-Z][a-z0-9]+){2,}\b")
WORD: Final = re.compile(r"[A-Za-z_]\w*")
STAND_IN: Final = re.compile(r"stands?[ _-]in|replay|simulated(?!_annealing)|recording", re.IGNORECASE)
ROOMS_OF_RESEARCH: Final = ("research/", "searchers/")
# Folders and files without source, or with names of what is gone.
NOT_READ: Final = {"node_modules", ".venv", "build", ".git", "static", "results", "adr", "CHANGELOG.md"}
CODE: Final = {".py", ".ts", ".tsx", ".toml", ".yml", ".sh", ".md", ".cc", ".h"}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def measure_names(tree: Tree, banned: Collection[str]) -> dict[str, list[str]]:
    """Return the places of all figures by name; `banned` are the words that name no variable."""
    return {
        "vague names": vague_names(tree, banned),
        "fragment docstrings": fragment_docstrings(tree),
        "stale names": stale_names(tree),
        "tuple splats": tuple_splats(tree),
        "files that name a stand-in": files_that_name_a_stand_in(tree),
    }


def vague_names(tree: Tree, banned: Collection[str]) -> list[str]:
    """Return the places of parameters and local variables with a banned name."""
    return [
        f"{tree.file(name)}:{line} {word}"
        for name, module in tree.modules.items()
        for word, line in _names(module)
        if word.lstrip("_") in banned
    ]


def fragment_docstrings(tree: Tree) -> list[str]:
    """Return the places of docstrings that begin with a pronoun, a preposition or a conjunction."""
    return [
        f"{place}: {text.splitlines()[0][:70]}"
        for place, text in _docstrings(tree)
        if text.split(maxsplit=1)[0].rstrip(",.:;").lower() in FRAGMENT
    ]


def stale_names(tree: Tree) -> list[str]:
    """Return the names in docstrings that no code, test or page of the checkout uses."""
    used = _used_names(tree.root) | set(dir(builtins))
    return [
        f"{place}: {name}"
        for place, text in _docstrings(tree)
        for name in sorted(_names_in(FOREIGN.sub("", text)))
        if name.rpartition(".")[2] not in used
    ]


def tuple_splats(tree: Tree) -> list[str]:
    """Return the calls of ours that unpack a name to which the calling function assigned a tuple."""
    callees = _with_fixed_parameters(tree)
    places: list[str] = []
    for name, module in tree.modules.items():
        for function in (node for node in ast.walk(module) if isinstance(node, Function)):
            tuples = {
                target.id
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            calls = (
                node
                for node in ast.walk(function)
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in callees
            )
            places += [
                f"{tree.file(name)}:{call.lineno} *{argument.value.id}"
                for call in calls
                for argument in call.args
                if isinstance(argument, ast.Starred)
                and isinstance(argument.value, ast.Name)
                and argument.value.id in tuples
            ]
    return places


def files_that_name_a_stand_in(tree: Tree) -> list[str]:
    """Return the first place in each file of the service that names a measurer without a device."""
    places: list[str] = []
    for name, text in tree.texts.items():
        if (match := STAND_IN.search(text)) and not tree.file(name).startswith(ROOMS_OF_RESEARCH):
            line = text.count("\n", 0, match.start()) + 1
            places.append(f"{tree.file(name)}:{line} {match.group()}")
    return places


def _names_in(docstring: str) -> set[str]:
    return {*QUOTED.findall(docstring), *CAMEL.findall(docstring)}


def _with_fixed_parameters(tree: Tree) -> set[str]:
    """Return the names of classes and functions of ours that take no `*args`."""
    fixed: set[str] = set()
    variadic: set[str] = set()
    for module in tree.modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                fixed.add(node.name)
            elif isinstance(node, Function):
                (variadic if node.args.vararg else fixed).add(node.name)
    return fixed - variadic


def _names(module: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield parameters and local variables, once a function, with a line."""
    for function in (node for node in ast.walk(module) if isinstance(node, Function)):
        places = dict[str, int]()
        for node in ast.walk(function):
            if isinstance(node, ast.arg):
                places.setdefault(node.arg, node.lineno)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                places.setdefault(node.id, node.lineno)
        yield from places.items()


def _docstrings(tree: Tree) -> Iterator[tuple[str, str]]:
    for name, module in tree.modules.items():
        for node in ast.walk(module):
            if isinstance(node, Documented) and (text := (ast.get_docstring(node) or "").strip()):
                yield f"{tree.file(name)}:{getattr(node, 'lineno', 1)}", text


@cache
def _used_names(root: Path) -> frozenset[str]:
    """Return the words of source files, without Python docstrings, and of pages on what is there."""
    words: set[str] = set()
    for path in root.rglob("*"):
        if path.suffix not in CODE or NOT_READ & set(path.relative_to(root).parts) or not path.is_file():
            continue
        text = path.read_text()
        if path.suffix == ".py":
            module = ast.parse(text)
            for node in ast.walk(module):
                if isinstance(node, Documented) and ast.get_docstring(node):
                    node.body[0] = ast.Pass()
            text = ast.unparse(module)
        words.update(WORD.findall(text))
    return frozenset(words)
