"""Every regular expression of the product takes a time that grows linearly with the text that it searches.

Strangers choose texts: addresses, options, names in models, lines of logs. Each expression in the source is
found here and tried on texts that are made of its own characters; one that never sees a stranger's text is
named with the reason.
"""

import ast
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from benchmarks.house_tree import RESEARCH, ROOMS

ROOT: Final = Path(__file__).parents[2]
COMPILING: Final = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
CHARS: Final = 1 << 12
TIMES_AS_LONG: Final = 8
#: A linear search takes eight times as long, a quadratic one sixty-four times.
MOST_GROWTH: Final = 24
#: Less than this at the longer text tells nothing of growth, and no quadratic search is so quick there.
NOISE_SEC: Final = 0.004
ENDLESS_SEC: Final = 0.4  # of all passes over both texts: no linear search takes so long
#: A file without these words has no regular expression and need not be parsed.
USES_ONE: Final = re.compile(r"\b(?:re|regex)\b")
#: How expressions are used that are passed on, or lie in tables; of all others the source tells.
TABLES: Final = {
    "workers/features/assembly_views.py": "search",
    "workers/features/instruction_sets.py": "search",
    "workers/tvm/programs/allowed_programs.py": "fullmatch",
}
#: What never sees a stranger's text, and why.
OWN: Final = {
    "workers/features/instruction_sets.py: pattern": "mnemonics out of LLVM's tables: a few letters",
    "workers/device/cpu_speed_limits.py: '[^a-z0-9]+'": "the kernel's name of this processor",
    "graphc/norm/vectorize_softmax_and_layer_norm.py: "
    "'for c in range\\\\(\\\\{chunks\\\\}\\\\):\\\\n((?: .*\\\\n)+)'": "a template of our own source",
    "graphc/quant/tile_function.py: '\\\\bv\\\\w+'": "index expressions that our own templates hold",
    # Quadratic where a line leaves a quote open and many escaped ones follow; stored keys depend on it.
    "workers/tvm/programs/workload_key.py: f'{_STRING}|(?<![\\\\w.])[A-Za-z_]\\\\w*(?!\\\\w|=(?!=))'": (
        "programs as TVM prints them, in a child that has a time limit"
    ),
    "workers/tvm/programs/allowed_programs.py: f'{_VARIABLE.pattern}|\"({words.pattern})\"'": (
        "alternatives of expressions that are tried by themselves"
    ),
    "stack/data_directory.py: b'\\\\\\\\([0-7]{3})'": "the kernel's list of mounts",
}
#: Whole pieces that cost most where an expression has more than single characters to stumble on.
PIECES: Final = {
    "mallorn/core/redaction.py": ("//a:b@", "pass", "secret_", "token=", ":a", "a:b:c@/"),
    "services/coordinator/web/audit_log.py": ("/jobs/", "/jobs/a", "/jobs/ab/"),
    "workers/tvm/network/check_onnx_model.py": ("Check failed: ", " is false", " : "),
    "workers/tvm/programs/workload_key.py": ("for ", " in", " = T.axis", '"\\'),
    "mallorn/core/format_text.py": ("`mallorn", "`pip ", "mallorn "),
    "mallorn/client/progress_lines.py": ("1 of ", "1 of 1 task"),
    "graphc/export/compile_network.py": ('"Tensorize",', '"Tensorize",]', '"Tensorize",], '),
    "workers/features/assembly_parser.py": (".type ", ".entry ", ".visible ", "; ", "# ", "%a "),
}


@dataclass(frozen=True)
class Found:
    """An expression in the source, and how it is used."""

    file: str
    source: str
    pattern: str | bytes | None
    method: str

    @property
    def name(self) -> str:
        return f"{self.file}: {self.source}"


def found_in(file: Path) -> Iterator[Found]:
    text, place = file.read_text(), str(file.relative_to(ROOT))
    if not USES_ONE.search(text):
        return
    tree = ast.parse(text)
    constants = dict(filter(None, map(constant, tree.body)))
    uses = {
        (
            node.func.value.id if isinstance(node.func.value, ast.Name) else node.func.value.attr
        ): node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name | ast.Attribute)
        and node.func.attr in COMPILING
    }
    # `filter(NAME.fullmatch, ...)` uses it as well.
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in COMPILING:
            uses.setdefault(node.value.id, node.attr)
    names = {
        id(node.value): node.targets[0] if isinstance(node, ast.Assign) else node.target
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module not in ("re", "regex"), (
                f"{place}: write `re.compile`, so that it is found here"
            )
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in COMPILING
        ):
            name = names.get(id(node))
            by_name = (uses.get(name.id) if isinstance(name, ast.Name) else None) or TABLES.get(place)
            method = by_name if node.func.attr == "compile" else node.func.attr
            pattern = text_of(node.args[0], constants)
            yield Found(place, ast.unparse(node.args[0]), pattern, method or "")


def constant(node: ast.stmt) -> tuple[str, str] | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    value = getattr(node, "value", None)
    if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return target.id, value.value
    return None


def text_of(node: ast.expr, constants: dict[str, str]) -> str | bytes | None:
    """What a literal says, with the module's own constants in it; None where that cannot be told."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.JoinedStr):
        parts = [
            text_of(part.value if isinstance(part, ast.FormattedValue) else part, constants)
            for part in node.values
        ]
        return None if None in parts else "".join(map(str, parts))
    return None


@cache
def everywhere() -> list[Found]:
    return [
        found
        for room in (*ROOMS, RESEARCH)
        for file in sorted((ROOT / room).rglob("*.py"))
        for found in found_in(file)
    ]


def strangers() -> list[Found]:
    return [found for found in everywhere() if found.name not in OWN]


def test_each_is_tried_or_named_with_a_reason() -> None:
    assert len(everywhere()) > 60
    assert set(OWN) <= {found.name for found in everywhere()}, "these are not there any more"
    for found in strangers():
        assert found.pattern is not None, (
            f"{found.name}: write it as a literal, or say in OWN whose text it sees"
        )
        assert found.method, f"{found.name}: how is it used?"


def texts(found: Found) -> Iterator[str]:
    """Pieces to repeat: the expression's own characters, alone and in pairs, and its file's own ones."""
    pattern = found.pattern if isinstance(found.pattern, str) else (found.pattern or b"").decode()
    own = set(re.sub(r"\\[A-Za-z]", "", pattern)) - set("()[]?*+^$|{}") | set("a1 ")
    single = sorted(each for each in own if each.isprintable())
    yield from single
    yield from PIECES.get(found.file, ())
    marks = [each for each in single if not each.isalnum()]
    yield from map("".join, product(marks, ("a", "1")))


def least_sec(call: Callable[[str], object], text: str, passes: int) -> float:
    """The least of some passes: what the search itself takes, whatever else the machine does."""
    found = []
    for _ in range(passes):
        began = time.thread_time()  # other programs do not count
        call(text)
        found.append(time.thread_time() - began)
    return min(found)


class Endless(Exception):
    """A search takes a time without end."""


@contextmanager
def ended() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS_SEC)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def growth(call: Callable[[str], object], piece: str) -> float:
    """How many times longer a text takes that is eight times as long; 0 where that is too quick to tell."""
    short, long = (f"{piece * (chars // len(piece))}\x01!" for chars in (CHARS, CHARS * TIMES_AS_LONG))
    try:
        with ended():
            if least_sec(call, long, 1) < NOISE_SEC:
                return 0.0
            for passes in (1, 3, 9):  # a busy machine is given another chance
                times = least_sec(call, long, passes) / least_sec(call, short, passes)
                if times <= MOST_GROWTH:
                    break
            return times
    except Endless:
        return float("inf")


def use(found: Found) -> Callable[[str], object]:
    assert found.pattern is not None
    compiled = re.compile(found.pattern, re.IGNORECASE if "pass" in str(found.pattern) else 0)
    ready: Callable[[str], str | bytes] = str.encode if isinstance(found.pattern, bytes) else str
    if found.method in ("sub", "subn"):
        return lambda text: compiled.sub(ready(""), ready(text))  # type: ignore[arg-type]
    return lambda text: (
        list(each) if hasattr(each := getattr(compiled, found.method)(ready(text)), "__next__") else each
    )


def test_no_text_takes_longer_than_its_length() -> None:
    times = {
        (found.name, found.method, piece): growth(use(found), piece)
        for found in strangers()
        for piece in texts(found)
    }
    assert {each: growth for each, growth in times.items() if growth > MOST_GROWTH} == {}


@pytest.mark.parametrize("pattern", [r"(a+)+b", r"\s*;$", r"(//|:(?=[^\s/@]*:[^\s/@]*@))[^\s]{0,300}@"])
def test_one_that_grows_is_caught(pattern: str) -> None:
    call = use(Found("here", "", pattern, "search"))
    assert any(growth(call, piece) > MOST_GROWTH for piece in ("a", " ", ":"))
