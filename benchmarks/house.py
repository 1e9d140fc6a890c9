"""Code quality figures of a checkout, counted by the same rules for old commits.

python -m benchmarks.house [TREE] [--list] [--json FILE]

TREE is a checkout, by default this one; `git worktree add --detach DIR COMMIT` makes one of an old commit.
Skips missing top-level folders and migrations; `mallorn/commands` of old trees counts as product.

- candidate types: top-level classes whose fields, own or inherited, identify a candidate (one of
  `candidate`, `decisions`, `sketch`, `sketch_id`, `slot`, `steps`) and hold its result (`outcome`,
  `latency_us`, `run_us`). A class that only holds such an object is not counted.
- loose lines: lines with `dict[str, Any]` or `Mapping[str, Any]`.
- files in steps: product files that the numbered steps of ARCHITECTURE.md name in backticks. None if
  the steps name no file, since then the figure has no meaning.
- files by calls: product files with a function that a submit, round, finish or download reaches, by the
  rule of `benchmarks.house_calls`. It includes generic machinery: compare it with other trees, not with
  files in steps.
- knots: groups of folders that import each other, directly or indirectly.
- names twice: names of more than one top-level class.
- small helpers: private functions of at most four lines, `def` included, whose name occurs in their
  file only in the definition and in one call. Functions that yield, or have a decorator other than
  `property`, do not count: they cannot be inlined.
- the figures of `benchmarks.house_names` and `benchmarks.house_sizes`.
"""

import argparse
import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from benchmarks.house_calls import Function, reached
from benchmarks.house_names import measure_names
from benchmarks.house_sizes import Figure, banned_modules, measure
from benchmarks.house_tree import MOST_LINES, Tree

WHICH: Final = {"candidate", "decisions", "sketch", "sketch_id", "slot", "steps"}
WHAT: Final = {"outcome", "latency_us", "run_us"}
LOOSE: Final = re.compile(r"\b(dict|Mapping)\[str, Any\]")
STEP: Final = re.compile(r"^\d+\. .*(?:\n(?!\d+\. |\n|#|```).*)*", re.MULTILINE)
QUOTED: Final = re.compile(r"`([^`\s]+\.py)\b[^`]*`")
TYPES: Final = "candidate types"
Counted = dict[str, list[str]]


def main() -> None:
    args = _arguments()
    tree = Tree(args.tree)
    counted = count(tree)
    if args.json:
        args.json.write_text(json.dumps(raw(tree, counted), indent=1) + "\n")
    for name, places in counted.items():
        print(f"{name}: {len(places) if places else _zero_or_none(name)}")
        if args.list:
            print(*(f"    {each}" for each in places), sep="\n")
    for name, figure in measure(tree).items():
        print(f"{name}: {figure.value:g}")
    print(f"types for one measured candidate: {len(counted[TYPES])}")


def raw(tree: Tree, counted: Counted) -> dict[str, object]:
    """Return all figures and counted places, for a JSON file."""
    numbers = {name: len(places) or _zero_or_none(name) for name, places in counted.items()}
    sizes = {name: figure.value for name, figure in measure(tree).items()}
    return {
        "benchmark": "house",
        "commit": _commit(tree.root),
        "figures": numbers | sizes | {"lines": tree.lines},
        "counted": counted,
        "headline": len(counted[TYPES]),
    }


def figures(tree: Tree, banned: Collection[str], vague: Collection[str]) -> dict[str, Figure]:
    """Return all figures that have a budget, with their places.

    `banned` are the words that name no module, `vague` those that name no parameter or variable.
    """
    listed = count(tree) | measure_names(tree, vague) | {"banned names": banned_modules(tree, banned)}
    found = {name: Figure(len(places), places) for name, places in listed.items() if name != "files in steps"}
    tied = [import_ for knot in listed["knots"] for import_ in knot_imports(tree, knot.split())]
    return found | {"knots": Figure(len(listed["knots"]), tied)} | measure(tree)


def count(tree: Tree) -> Counted:
    """Return the counted places of each figure."""
    return {
        TYPES: candidate_types(tree),
        "loose lines": [
            f"{tree.file(name)}:{number}"
            for name, text in tree.texts.items()
            for number, line in enumerate(text.splitlines(), 1)
            if LOOSE.search(line)
        ],
        "files in steps": files_in_steps(tree),
        "files by calls": sorted(tree.file(name) for name in reached(tree)),
        "knots": [" ".join(sorted(knot)) for knot in knots(folder_imports(tree))],
        "names twice": names_twice(tree),
        "small helpers": small_helpers(tree),
    }


def candidate_types(tree: Tree) -> list[str]:
    """Return classes that identify a candidate and hold its result."""
    fields: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for _, node in tree.classes:
        fields[node.name] |= _own_fields(node)
        bases[node.name] |= {ast.unparse(base) for base in node.bases}
    return [
        f"{tree.file(module)}: {node.name}"
        for module, node in tree.classes
        if (names := _own_fields(node).union(*(fields[base] for base in _reach(bases, node.name)))) & WHICH
        and names & WHAT
    ]


def files_in_steps(tree: Tree) -> list[str]:
    """Return files named in steps of ARCHITECTURE.md. Raises FileNotFoundError."""
    page = tree.root / "ARCHITECTURE.md"
    steps = STEP.findall(page.read_text()) if page.is_file() else []
    named = sorted({path for step in steps for path in QUOTED.findall(step)})
    files = {tree.file(name) for name in tree.modules}
    if missing := [path for path in named if path not in files]:
        raise FileNotFoundError(f"ARCHITECTURE.md names {', '.join(missing)}")
    return named


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
    for module, node in tree.classes:
        places[node.name].append(tree.file(module))
    return [f"{name}: {', '.join(files)}" for name, files in sorted(places.items()) if len(files) > 1]


def small_helpers(tree: Tree) -> list[str]:
    """Return short private functions with a single call that could be inlined."""
    return [
        f"{tree.file(name)}:{node.lineno} {node.name}"
        for name, module in tree.modules.items()
        for node in _private(module)
        if (node.end_lineno or node.lineno) - node.lineno < MOST_LINES
        and len(re.findall(rf"\b{node.name}\b", tree.texts[name])) == 2
        and _could_be_inlined(module, node)
    ]


def _could_be_inlined(module: ast.Module, function: Function) -> bool:
    decorators = [ast.unparse(each) for each in function.decorator_list]
    if decorators:
        return decorators == ["property"]
    called = (node.func for node in ast.walk(module) if isinstance(node, ast.Call))
    names = (each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in called)
    yields = (isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    return function.name in names and not any(yields)


def _own_fields(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}


def _reach(graph: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return all nodes reached from a node, including itself only through a cycle."""
    reachable: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(graph.get(waiting.pop(), ())) - reachable
        reachable |= new
        waiting += new
    return reachable


def _private(module: ast.Module) -> Iterator[Function]:
    functions = (node for node in ast.walk(module) if isinstance(node, Function))
    return (each for each in functions if each.name.startswith("_") and not each.name.startswith("__"))


def _zero_or_none(name: str) -> int | None:
    return None if name == "files in steps" else 0


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
