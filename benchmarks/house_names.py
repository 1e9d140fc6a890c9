"""Stale names: names in docstrings and in errors' messages that the code does not define.

A name is what stands in backticks or in a Sphinx role, each `name()`, and each word in CamelCase; in
messages only `name()`. Each part of a dotted name must be a keyword, a builtin, part of a module's name, a
class, a function, a constant, a class's field, an attribute that the product assigns, or a text that is one
identifier (a registered name, a key, an option). Parameters, local variables, imported names and attributes
of other libraries count in their own file only. Names of other libraries that a file does not use stand in
double backticks, which are not read.
"""

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from typing import Final

from benchmarks.house_tree import Tree

FOREIGN: Final = re.compile(r"``[^`]+``")
QUOTED: Final = re.compile(r"(?<!`)`~?([A-Za-z_][\w.]*)(?:\([^`]*\))?`(?!`)")
CAMEL: Final = re.compile(r"\b(?:[A-Z][a-z0-9]+){2,}\b")
PROPER_NOUNS: Final = {"AdaTune", "FlexTensor", "HttpOnly", "LambdaRank", "NumPy", "ProTuner", "TenSet"}
CALLED: Final = re.compile(r"\b([A-Za-z_][\w.]*)\(\)")
IDENTIFIER: Final = re.compile(r"[A-Za-z_][\w.-]*")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def stale_names(tree: Tree) -> list[str]:
    """Return the names in docstrings and messages that the product does not define, with their places."""
    everywhere = PROPER_NOUNS.union(
        dir(builtins), keyword.kwlist, *(name.split(".") for name in tree.modules)
    )
    everywhere.update(*(_names_for_all_files(module) for module in tree.modules.values()))
    return [
        f"{tree.file(name)}:{line}: {each}"
        for name, module in tree.modules.items()
        for defined in [everywhere.union(_names_for_one_file(module))]
        for line, names in _mentioned(module)
        for each in sorted(names)
        if not defined.issuperset(each.strip(".").split("."))
    ]


def _mentioned(module: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Yield the line and the names of each docstring, and of each text in a `raise` statement."""
    for node in ast.walk(module):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            ours = FOREIGN.sub("", text)
            names = {*QUOTED.findall(ours), *CAMEL.findall(ours), *CALLED.findall(ours)}
            yield getattr(node, "lineno", 1), names
        elif isinstance(node, ast.Raise):
            yield from ((node.lineno, set(CALLED.findall(text))) for _, text in _texts(node))


def _names_for_all_files(module: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines for others, and the identifiers in its texts."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, Documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(module):
        if isinstance(node, Definition):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        if isinstance(node, ast.Module | ast.ClassDef):
            fields = (each for each in node.body if not isinstance(each, Definition))
            yield from (name for field in fields for name in _assigned(field))
    for text_id, text in _texts(module):
        if text_id not in docstrings and IDENTIFIER.fullmatch(text):
            yield from (text, *re.split("[.-]", text))


def _names_for_one_file(module: ast.Module) -> Iterator[str]:
    """Yield parameters, keywords, local variables, imported names and attributes."""
    yield from _assigned(module)
    for node in ast.walk(module):
        if isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from (*node.name.split("."), node.asname or node.name)


def _assigned(tree: ast.AST) -> Iterator[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return (node.id for node in nodes if isinstance(node.ctx, ast.Store))


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the id of each text's node, and the text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield id(node), node.value
