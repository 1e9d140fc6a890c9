"""Code quality figures of a checkout, counted by the same rules for old commits.

python -m benchmarks.house [TREE] [--list] [--json FILE]

TREE is a checkout, by default this one; `git worktree add --detach DIR COMMIT` makes one of an old commit.
Skips missing top-level folders and migrations; `mallorn/commands` of old trees counts as product.

- loose lines: lines with `dict[str, Any]` or `Mapping[str, Any]`.
- knots: groups of folders that import each other, directly or indirectly.
- names twice: names of more than one top-level class.
- stale names: see `benchmarks.house_names`.
- product lines, service lines, page lines, words of prose, line length: see `benchmarks.house_sizes`.
"""

import argparse
import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.house_names import stale_names
from benchmarks.house_sizes import Figure, measure
from benchmarks.house_tree import Tree

LOOSE: Final = re.compile(r"\b(dict|Mapping)\[str, Any\]")
HEADLINE: Final = "product lines"


def main() -> None:
    args = _arguments()
    tree = Tree(args.tree)
    counted = figures(tree)
    if args.json:
        args.json.write_text(json.dumps(raw(tree, counted), indent=1) + "\n")
    for name, figure in counted.items():
        if args.list:
            print(*(f"    {each}" for each in figure.places), sep="\n")
        print(f"{name}: {figure.value:g}")


def raw(tree: Tree, counted: Mapping[str, Figure]) -> dict[str, object]:
    """Return all figures and counted places, for a JSON file."""
    return {
        "benchmark": "house",
        "commit": _commit(tree.root),
        "figures": {name: figure.value for name, figure in counted.items()},
        "counted": {name: figure.places for name, figure in counted.items()},
        "headline": counted[HEADLINE].value,
    }


def figures(tree: Tree) -> dict[str, Figure]:
    """Return all figures, with their places."""
    groups = knots(folder_imports(tree))
    listed = {
        "loose lines": loose_lines(tree),
        "names twice": names_twice(tree),
        "stale names": stale_names(tree),
    }
    return {
        "knots": Figure(len(groups), [import_ for knot in groups for import_ in knot_imports(tree, knot)]),
        **{name: Figure(len(places), places) for name, places in listed.items()},
        **measure(tree),
    }


def loose_lines(tree: Tree) -> list[str]:
    """Return the places of lines with a dictionary whose values have no type."""
    return [
        f"{tree.file(name)}:{number}"
        for name, text in tree.texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if LOOSE.search(line)
    ]


def folder_imports(tree: Tree) -> dict[str, set[str]]:
    """Return the folders from which each folder imports."""
    folders: dict[str, set[str]] = defaultdict(set)
    for name, module in tree.modules.items():
        others = {tree.folder(other) for other in tree.imports(module)}
        folders[tree.folder(name)] |= others - {tree.folder(name)}
    return folders


def knots(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the sets of nodes that all reach each other."""
    after = {node: _reach(graph, node) for node in graph}
    groups: list[set[str]] = []
    for node in sorted(graph):
        mutual = {other for other in after[node] if node in after.get(other, ())}
        if mutual and mutual not in groups:
            groups.append(mutual)
    return groups


def knot_imports(tree: Tree, folders: Collection[str]) -> list[str]:
    """Return imports between these folders, pairs of folders with fewest imports first."""
    places = defaultdict[tuple[str, str], list[str]](list)
    inside = (each for each in tree.modules.items() if tree.folder(each[0]) in folders)
    for name, module in inside:
        for node, other in tree.import_lines(module):
            pair = tree.folder(name), tree.folder(other)
            if pair[0] != pair[1] and pair[1] in folders:
                places[pair].append(f"{tree.file(name)}:{node.lineno} imports {other}")
    return [place for lines in sorted(places.values(), key=len) for place in lines]


def names_twice(tree: Tree) -> list[str]:
    """Return names that several classes share, with their files."""
    places = defaultdict[str, list[str]](list)
    for module in tree.modules:
        for node in tree.modules[module].body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(tree.file(module))
    return [f"{name}: {', '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def _reach(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return all nodes reached from a node, including itself only through a cycle."""
    reachable: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - reachable
        reachable |= new
        waiting += new
    return reachable


def _commit(root: Path) -> str:
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", default=Path())
    parser.add_argument("--list", action="store_true", help="also what was counted")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
