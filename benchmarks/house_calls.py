"""Find the modules that a job reaches, by following names from the client's first call.

A function is reached if it is a start or a reached body names it. A class named there adds its
bases, its special methods, and methods whose names occur as attributes in any reached body. Names are
followed through imports, also those inside functions; nothing is run, and no types are inferred. Names
in texts are not followed: plug-ins (`mallorn.core.registry`), calls to child processes, and Celery
messages, whose tasks are starts themselves.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.house_tree import Tree

Place = tuple[str, str]  # module and name; the name is empty for the module itself
Function = ast.FunctionDef | ast.AsyncFunctionDef


def reached(tree: Tree, starts: Mapping[str, set[str]]) -> set[str]:
    """Return the modules with a function that the starts reach.

    `starts` are names of functions by the beginning of a module's name.
    """
    names = Names(tree)
    walk = _Walk(names)
    walk.visit(
        (module, function)
        for (module, name), function in names.functions()
        if any(module.startswith(room) and name in functions for room, functions in starts.items())
    )
    return walk.modules


class Names:
    """Resolves names in each module to definitions of the product."""

    def __init__(self, tree: Tree) -> None:
        self._modules = tree.modules
        self._imported = {name: dict(_imported(module)) for name, module in tree.modules.items()}
        self.defined = {
            (name, node.name): node
            for name, module in tree.modules.items()
            for node in module.body
            if isinstance(node, Function | ast.ClassDef)
        }

    def functions(self) -> Iterator[tuple[Place, Function]]:
        """Yield all functions, and methods as `Class.method`."""
        for (module, name), node in self.defined.items():
            if isinstance(node, ast.ClassDef):
                yield from (((module, f"{name}.{each.name}"), each) for each in methods(node))
            else:
                yield (module, name), node

    def meant(self, module: str, name: str) -> Place | None:
        """Return where a name of a module is defined; None if outside the product."""
        seen = set()
        while (module, name) not in seen:
            seen.add((module, name))
            if (module, name) in self.defined:
                return module, name
            origin, original = self._imported.get(module, {}).get(name, ("", ""))
            if f"{origin}.{original}" in self._modules or (origin in self._modules and not original):
                return f"{origin}.{original}".rstrip("."), ""
            module, name = origin, original
        return None

    def named(self, module: str, node: ast.AST) -> Iterator[Place]:
        """Yield the definitions that a piece of code names, as `f` or as `module.f`."""
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                yield from self._place(self.meant(module, each.id))
            elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
                owner = self.meant(module, each.value.id)
                if owner is not None and not owner[1]:
                    yield from self._place(self.meant(owner[0], each.attr))

    def _place(self, place: Place | None) -> Iterator[Place]:
        if place in self.defined and place is not None:
            yield place


@dataclass(slots=True)
class _Walk:
    """Collects the reached modules, classes, attributes and functions."""

    names: Names
    modules: set[str] = field(default_factory=set)
    _classes: set[Place] = field(default_factory=set)
    _attributes: set[str] = field(default_factory=set)
    _seen: set[Function] = field(default_factory=set)

    def visit(self, starts: Iterable[tuple[str, Function]]) -> None:
        """Follow all names from these functions until nothing new is reached."""
        queue = list(starts)
        while queue:
            while queue:
                module, function = queue.pop()
                if function not in self._seen:
                    self._seen.add(function)
                    self.modules.add(module)
                    queue += self._called(module, function)
            queue = [each for each in self._methods() if each[1] not in self._seen]

    def _called(self, module: str, function: Function) -> Iterator[tuple[str, Function]]:
        for statement in function.body:
            nodes = ast.walk(statement)
            self._attributes |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            for place in self.names.named(module, statement):
                node = self.names.defined[place]
                if isinstance(node, ast.ClassDef):
                    self._add_class(place)
                else:
                    yield place[0], node

    def _add_class(self, place: Place) -> None:
        if place not in self._classes:
            self._classes.add(place)
            node = self.names.defined[place]
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                for other in self.names.named(place[0], base):
                    if isinstance(self.names.defined[other], ast.ClassDef):
                        self._add_class(other)

    def _methods(self) -> Iterator[tuple[str, Function]]:
        for module, name in self._classes:
            for method in methods(self.names.defined[module, name]):
                if method.name.startswith("__") or method.name in self._attributes:
                    yield module, method


def methods(node: ast.AST) -> list[Function]:
    """Return the methods of a class."""
    return [each for each in getattr(node, "body", ()) if isinstance(each, Function)]


def _imported(module: ast.Module) -> Iterator[tuple[str, Place]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, (alias.name, "")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            origin = node.module
            yield from ((alias.asname or alias.name, (origin, alias.name)) for alias in node.names)
