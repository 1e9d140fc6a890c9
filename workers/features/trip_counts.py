"""Trip counts of loops in generated code whose bounds are constants in the assembly."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workers.features.assembly_parser import MachineFunction

UNKNOWN: Final = 8.0  # assumed trip count of a loop whose bounds are not constants
TOGGLED: Final = 2.0  # trip count of a loop that toggles a flag
NEAR: Final = 8  # instructions before the backward jump that are searched for its condition
BEFORE: Final = 60  # instructions before a loop that are searched for the start of its counter
MOST: Final = 1e7  # larger counts are misread: no candidate has such a loop

_X86_NAMES: Final = re.compile(r"^[re]?([abcd])x$|^([abcd])l$|^[re]?([sd]i|[sb]p)l?$|^(r\d+)[dwb]?$")


@dataclass(frozen=True, slots=True)
class Counting:
    """Patterns of loop counters; the groups `n` and `r` are number and register."""

    again: re.Pattern[str]  # backward jumps that end counted loops, not relocated code
    compare: re.Pattern[str]
    flag: re.Pattern[str]
    step: re.Pattern[str]
    one: re.Pattern[str]
    moved: re.Pattern[str]  # a step that writes its result to another register
    begin: re.Pattern[str]
    zero: re.Pattern[str]


COUNTS_ON_X86: Final = Counting(
    again=re.compile(r"^j(?:ne|b|l) "),
    compare=re.compile(r"^cmp[bwlq] \$(?P<n>-?\d+), %(?P<r>\w+)$"),
    flag=re.compile(r"^testb \$1, %(?P<r>\w+)$"),
    step=re.compile(r"^(?P<sign>add|sub)[lq] \$(?P<n>-?\d+), %(?P<r>\w+)$"),
    one=re.compile(r"^(?P<sign>inc|dec)[lq] %(?P<r>\w+)$"),
    moved=re.compile(r"^lea[lq] (?P<n>-?\d+)\(%\w+\), %(?P<r>\w+)$"),
    begin=re.compile(r"^mov[lq] \$(?P<n>-?\d+), %(?P<r>\w+)$"),
    zero=re.compile(r"^xorl %(?P<r>\w+), %(?P=r)$"),
)
COUNTS_ON_ARM64: Final = Counting(
    again=re.compile(r"^b\.(?:ne|lo|lt) |^cbnz "),
    compare=re.compile(r"^cmp (?P<r>[xw]\d+), #(?P<n>-?\d+)"),
    flag=re.compile(r"^tst (?P<r>[xw]\d+), #0x1$"),
    step=re.compile(r"^(?P<sign>add|sub)s? (?P<r>[xw]\d+), (?P=r), #(?P<n>\d+)$"),
    one=re.compile(r"(?!)"),
    moved=re.compile(r"^add (?P<r>[xw]\d+), [xw]\d+, #(?P<n>\d+)$"),
    begin=re.compile(r"^mov (?P<r>[xw]\d+), #(?P<n>-?\d+)"),
    zero=re.compile(r"^mov (?P<r>[xw]\d+), [xw]zr$"),
)


def runs_of(function: MachineFunction, counting: Counting) -> list[float]:
    """Return how often each instruction runs in one call of the function."""
    texts = [f"{each.mnemonic} {' '.join(each.operands.split())}" for each in function.instructions]
    runs = [1.0] * len(texts)
    for start, end in function.loops:
        trips = _trips(texts, start, end, counting)
        for index in range(start, end + 1):
            runs[index] = min(MOST, runs[index] * trips)
    return runs


def _trips(texts: Sequence[str], start: int, end: int, counting: Counting) -> float:
    """Return (end - start) / step of the loop's counter; UNKNOWN if they cannot be read."""
    if not counting.again.match(texts[end]):
        return 1.0
    for text in reversed(texts[max(start, end - NEAR) : end]):
        if counting.flag.match(text):
            return TOGGLED
        if match := counting.compare.match(text):
            return _counted(texts, start, end, _register(match["r"]), float(match["n"]), counting)
        if match := counting.step.match(text) or counting.one.match(text):  # down to 0
            return _counted(texts, start, end, _register(match["r"]), 0.0, counting)
    return UNKNOWN


def _counted(
    texts: Sequence[str], start: int, end: int, register: str, last: float, counting: Counting
) -> float:
    step = next(filter(None, (_step(text, register, counting) for text in texts[start:end])), None)
    first = _first(texts[max(0, start - BEFORE) : start], register, counting)
    trips = (last - first) / step if step else 0.0
    return trips if 1 <= trips <= MOST else UNKNOWN


def _step(text: str, register: str, counting: Counting) -> float | None:
    match = counting.step.match(text) or counting.one.match(text) or counting.moved.match(text)
    if not match or _register(match["r"]) != register:
        return None
    parts = match.groupdict()
    size = float(parts.get("n") or 1.0)
    return -size if parts.get("sign") in ("sub", "dec") else size


def _first(before: Sequence[str], register: str, counting: Counting) -> float:
    for text in reversed(before):
        zero, begin = counting.zero.match(text), counting.begin.match(text)
        if zero and _register(zero["r"]) == register:
            return 0.0
        if begin and _register(begin["r"]) == register:
            return float(begin["n"])
    return 0.0


def _register(name: str) -> str:
    """Return one name for all widths of a register."""
    match = _X86_NAMES.match(name)
    return next(filter(None, match.groups())) if match else name.lstrip("xw")
