"""Compare the figures of a checkout with the budgets in its house.toml, as `make house` does.

python -m benchmarks.house_budget [TREE]

Fails if a figure is above its budget, if a budget is above the last one of the main branch, or if two
classes share a name and neither house.toml nor docs/glossary.md gives a reason. For a figure well below
its budget, prints the line to write into house.toml.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.house import figures, names_twice
from benchmarks.house_sizes import Figure
from benchmarks.house_tree import Tree

FILE: Final = "house.toml"
MAIN: Final = ("origin/main", "main")
SHOWN: Final = 10  # places to print of a figure above its budget
SLACK: Final = 0.01  # share of a budget; if a figure is lower by more, lower the budget
ADVICE: Final = {
    "loose lines": "Give the value a type: a pydantic Value for JSON, a dataclass, or dict[str, object].",
    "knots": "Move what is imported first below into the folder that imports it, or below both.",
    "names twice": "Give one of the two classes another name.",
    "product lines": "Take out as much as was added: merge, inline, remove what one caller uses.",
    "service lines": "Take out as much as was added, or move what no default uses to mallorn-research.",
    "page lines": "Take out as much as was added: share components, remove what is computed twice.",
    "words of prose": "Shorten pages: reasons belong to docs/adr, history to CHANGELOG.md.",
    "stale names": "Name what exists, or put a name that is not ours into double backticks.",
    "90th percentile of line length": "Break the lines below: code may not become denser.",
}


@dataclass(frozen=True, slots=True)
class Budgets:
    """Contents of house.toml."""

    most: Mapping[str, float]
    rise: Mapping[str, float]
    twice: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "Budgets":
        """Parse house.toml. Raises KeyError, naming the part, if one is missing."""
        content = tomllib.loads(text)
        return cls(most=content["most"], rise=content["rise"], twice=content["twice"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tree", type=Path, nargs="?", default=Path())
    tree = Tree(parser.parse_args().tree)
    budgets = Budgets.parse((tree.root / FILE).read_text())
    current = figures(tree)
    failures = [
        *raised(budgets, earlier(tree.root)),
        *over_budget(budgets, current, changed_files(tree.root)),
        *unexplained(budgets, tree),
    ]
    for line in (*lower(budgets, current), *unused(budgets, tree)):
        print(line)
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


def over_budget(budgets: Budgets, found: Mapping[str, Figure], changed: Iterable[str] = ()) -> Iterator[str]:
    """Yield a message per figure above its budget, places in changed files first."""
    files = set(changed)
    for name, figure in found.items():
        most = budgets.most[name]
        if figure.value > most:
            places = sorted(figure.places, key=lambda each: files.isdisjoint(re.split("[:, ]+", each)))
            lines = [f"    {each}" for each in places[:SHOWN]]
            rest = [f"    ... and {len(places) - SHOWN} more"] if len(places) > SHOWN else []
            head = f"{name}: {figure.value:,g}, and the budget in {FILE} is {most:,g}. {ADVICE[name]}"
            yield "\n".join([head, *lines, *rest])


def lower(budgets: Budgets, found: Mapping[str, Figure]) -> Iterator[str]:
    """Yield lines for house.toml of figures that are well below their budgets."""
    for name, figure in found.items():
        if figure.value < budgets.most[name] * (1 - SLACK):
            yield f'{FILE} can be lowered: "{name}" = {figure.value:g}  # was {budgets.most[name]:g}'


def raised(budgets: Budgets, before: Budgets | None) -> Iterator[str]:
    """Yield a message per budget that rose by more than house.toml allows."""
    for name, most in budgets.most.items() if before else ():
        allowed = before.most.get(name, most) + before.rise.get(name, 0) if before else most
        if most > allowed:
            yield f"{FILE}: the budget of {name} rose from {allowed:,g} to {most:,g}. Lower the figure."


def unexplained(budgets: Budgets, tree: Tree) -> Iterator[str]:
    """Yield a message per shared class name without a reason."""
    page = tree.root / "docs" / "glossary.md"
    lines = page.read_text().splitlines() if page.is_file() else []
    for each in names_twice(tree):
        name, _, files = each.partition(": ")
        given = any(f"`{name}`" in line and all(file in line for file in files.split(", ")) for line in lines)
        if name not in budgets.twice and not given:
            yield (
                f"{name} is a class in {files}. Rename one, or write the reason under [twice] in {FILE}, "
                f"or into a line of docs/glossary.md that names the class and both files."
            )


def unused(budgets: Budgets, tree: Tree) -> Iterator[str]:
    """Yield a message per reason whose class name is not shared."""
    twice = {each.partition(":")[0] for each in names_twice(tree)}
    yield from (f"{FILE}: {name} does not stand twice; take it out." for name in budgets.twice.keys() - twice)


def earlier(root: Path) -> Budgets | None:
    """Return budgets at the merge base with main (on main: of HEAD~1); None without git."""
    text = _git(root, "show", f"{_merge_base(root)}:./{FILE}")
    return Budgets.parse(text) if text else None


def changed_files(root: Path) -> list[str]:
    """Return files changed since that commit, untracked ones included."""
    changed = _git(root, "diff", "--name-only", "--relative", _merge_base(root))
    return (changed + _git(root, "ls-files", "--others", "--exclude-standard")).split()


def _merge_base(root: Path) -> str:
    head = _git(root, "rev-parse", "HEAD")
    bases = [_git(root, "merge-base", "HEAD", branch) for branch in MAIN]
    return next((base for base in bases if base and base != head), "HEAD~1").strip()


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    main()
