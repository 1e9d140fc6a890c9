"""How often the loops of generated code run, as far as their bounds are written into them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from workers.features.assembly_parser import MachineFunction

UNKNOWN: Final = 8.0  # runs of a loop whose bounds come from elsewhere
TOGGLED: Final = 2.0  # runs of a loop over a flag
NEAR: Final = 8  # instructions before the jump back, among which it is decided
BEFORE: Final = 60  # instructions before a loop, among which its counter begins
MOST: Final = 1e7  # more is no loop of a program that ends soon

_X86_NAMES: Final = re.compile(r"^[re]?([abcd])x$|^([abcd])l$|^[re]?([sd]i|[sb]p)l?$|^(r\d+)[dwb]?$")


@dataclass(frozen=True, slots=True)
class Counting:
    """How an instruction set writes a counter: number and register are the groups `n` and `r`."""

    again: re.Pattern[str]  # jumps back that count; others come from code that was moved out of the way
    compare: re.Pattern[str]
    flag: re.Pattern[str]
    step: re.Pattern[str]
    one: re.Pattern[str]
    moved: re.Pattern[str]  # a step whose result is kept elsewhere
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
    """How often each instruction runs when the function is called once."""
    texts = [f"{each.mnemonic} {' '.join(each.operands.split())}" for each in function.instructions]
    runs = [1.0] * len(texts)
    for start, end in function.loops:
        trips = _trips(texts, start, end, counting)
        for at in range(start, end + 1):
            runs[at] = min(MOST, runs[at] * trips)
    return runs


def _trips(texts: Sequence[str], start: int, end: int, counting: Counting) -> float:
    """Where the counter ends, less where it begins, by its steps."""
    if not counting.again.match(texts[end]):
        return 1.0
    for text in reversed(texts[max(start, end - NEAR) : end]):
        if counting.flag.match(text):
            return TOGGLED
        if found := counting.compare.match(text):
            return _counted(texts, start, end, _register(found["r"]), float(found["n"]), counting)
        if found := counting.step.match(text) or counting.one.match(text):  # down to zero, without a compare
            return _counted(texts, start, end, _register(found["r"]), 0.0, counting)
    return UNKNOWN


def _counted(
    texts: Sequence[str], start: int, end: int, register: str, last: float, counting: Counting
) -> float:
    step = next(filter(None, (_step(text, register, counting) for text in texts[start:end])), None)
    first = _first(texts[max(0, start - BEFORE) : start], register, counting)
    trips = (last - first) / step if step else 0.0
    return trips if 1 <= trips <= MOST else UNKNOWN


def _step(text: str, register: str, counting: Counting) -> float | None:
    found = counting.step.match(text) or counting.one.match(text) or counting.moved.match(text)
    if not found or _register(found["r"]) != register:
        return None
    parts = found.groupdict()
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
    """One name for all widths of a register."""
    found = _X86_NAMES.match(name)
    return next(filter(None, found.groups())) if found else name.lstrip("xw")
