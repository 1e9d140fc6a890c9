"""Random draws of code, messages and pages, for readers who judge how plain they are.

python -m benchmarks.draws {docstrings,functions,files,messages,pages} COUNT --seed SEED [--package NAME]
python -m benchmarks.draws summary VERDICTS...

The first form prints one JSON object a line. `docstrings` and `messages` (the texts of raised errors) are
whole; of `functions` and `files` a reader sees the path, the name and the signature only, and says what the
code does before reading it; of `pages`, the pages of docs/, the path. --package draws from an installed
package in place of the product, as an anchor.

The second form reads files of verdicts. A verdict is a line with `kind`, `package`, `place` and `score`: 2 is
plain at the first reading or guessed right, 1 is plain after a second reading or guessed in part, 0 is
cryptic, false or guessed wrong.
"""

import argparse
import ast
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.house_names import Documented
from benchmarks.house_tree import Tree

KINDS: Final = ("docstrings", "functions", "files", "messages", "pages")
LEAST_WORDS_OF_A_MESSAGE: Final = 5
PLAIN: Final = 2
CRYPTIC: Final = 0
OURS: Final = "mallorn"
Row = dict[str, Any]


def main() -> None:
    args = _arguments()
    if args.kind == "summary":
        print(*summary(read_verdicts(map(Path, args.rest))), sep="\n")
        return
    modules = product(Path()) if args.package == OURS else package(args.package)
    for row in draw(args.kind, modules, int(args.rest[0]), args.seed):
        print(json.dumps({"kind": args.kind, "package": args.package, **row}))


def draw(kind: str, modules: dict[str, str], count: int, seed: int) -> list[Row]:
    """Return `count` random rows of a kind; the same seed and sources give the same rows."""
    kinds = {"docstrings": docstrings, "functions": functions, "files": files, "messages": messages}
    rows = list(pages(Path("docs")) if kind == "pages" else kinds[kind](modules))
    return random.Random(seed).sample(rows, min(count, len(rows)))


def docstrings(modules: dict[str, str]) -> Iterator[Row]:
    """Yield the docstring of each module, class and function."""
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, Documented) and (docstring := ast.get_docstring(node)):
                place = f"{path}:{getattr(node, 'lineno', 1)}"
                yield {"place": place, "name": getattr(node, "name", "module"), "text": docstring}


def functions(modules: dict[str, str]) -> Iterator[Row]:
    """Yield path, name and signature of each function but special methods, with its class."""
    for path, text in modules.items():
        for owner, node in _functions(ast.parse(text)):
            if not node.name.startswith("__"):
                returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
                signature = f"{owner}{node.name}({ast.unparse(node.args)}){returns}"
                yield {"place": f"{path}:{node.lineno}", "signature": signature}


def files(modules: dict[str, str]) -> Iterator[Row]:
    """Yield the path of each file that holds code."""
    for path, text in modules.items():
        if any(not isinstance(node, ast.Expr) for node in ast.parse(text).body):
            yield {"place": path}


def messages(modules: dict[str, str]) -> Iterator[Row]:
    """Yield each error that is raised with a text of several words, as source."""
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _has_message(node.exc):
                yield {"place": f"{path}:{node.lineno}", "text": ast.unparse(node.exc)}


def pages(folder: Path) -> Iterator[Row]:
    """Yield the path of each page of documentation but results, decisions and generated reference."""
    for path in sorted(folder.rglob("*.md")):
        if path.relative_to(folder).parts[0] not in ("results", "adr", "reference"):
            yield {"place": str(path)}


def product(root: Path) -> dict[str, str]:
    """Return the texts of the product's files by path."""
    tree = Tree(root)
    return {tree.file(name): text for name, text in tree.texts.items()}


def package(name: str) -> dict[str, str]:
    """Return the texts of an installed package's files by path. Raises ModuleNotFoundError."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name)
    root = Path(spec.submodule_search_locations[0])
    return {str(path.relative_to(root.parent)): path.read_text() for path in sorted(root.rglob("*.py"))}


def read_verdicts(paths: Iterable[Path]) -> list[Row]:
    """Return the verdicts of some files; lines without a score, such as the first, are left out."""
    lines = (json.loads(line) for path in paths for line in path.read_text().splitlines())
    return [line for line in lines if "score" in line]


def summary(verdicts: Iterable[Row]) -> Iterator[str]:
    """Yield a line of a table for each kind and package."""
    scores = defaultdict[tuple[str, str], list[int]](list)
    for row in verdicts:
        scores[row["kind"], row["package"]].append(row["score"])
    yield "| drawn | of | number | plain or right | in part | cryptic or wrong | mean of 0 to 2 |"
    yield "|---|---|---|---|---|---|---|"
    for (kind, name), values in sorted(scores.items()):
        counts = values.count(PLAIN), values.count(1), values.count(CRYPTIC)
        yield f"| {kind} | {name} | {len(values)} | {' | '.join(map(str, counts))} | {fmean(values):.2f} |"


def _functions(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield functions of a module and methods of its classes, with the class as a prefix."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            yield from ((f"{node.name}.", method) for method in methods)


def _has_message(call: ast.Call) -> bool:
    """Return True where an argument of a call holds a text of several words."""
    texts = (
        node.value
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return sum(len(text.split()) for text in texts) >= LEAST_WORDS_OF_A_MESSAGE


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kind", choices=(*KINDS, "summary"))
    parser.add_argument("rest", nargs="+", help="a count, or files of verdicts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--package", default=OURS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
