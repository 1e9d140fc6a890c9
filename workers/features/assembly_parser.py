"""Parse generated assembly into instructions with their loop depth."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"^([$.\w@]+):")
_TYPED = re.compile(r"\.type\s+([$.\w]+),\s*[@%]function")
_ENTRY = re.compile(r"^\s*\.(?:visible |weak )*(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)")  # of PTX
_GUARD = re.compile(r"^@!?%\w+\s+")
_COMMENT = re.compile(r"(?<!\s)\s*(?:#(?=[\s#]|$)|//|;\s*$).*$")  # not AArch64's #immediates
# Functions of the runtime and the C library. Bodies of parallel loops begin with `.L__`.
_RUNTIME_NAME = re.compile(r"^__")


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """An instruction inside `depth` loops; `innermost`: its loop contains no other loop."""

    mnemonic: str
    operands: str
    guarded: bool = False
    depth: int = 0
    innermost: bool = False


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function's instructions, and its loops as (first, last) indices of instructions."""

    name: str
    instructions: tuple[MachineInstruction, ...]
    loops: tuple[tuple[int, int], ...]


def functions_of(text: str) -> list[MachineFunction]:
    """Return the functions except the runtime's (prefix `__`), or all if none would remain."""
    symbols = frozenset(_TYPED.findall(text))
    bodies = [_function(name, lines) for name, lines in _bodies(text, symbols)]
    functions = [function for function in bodies if function.instructions]
    return [each for each in functions if not _RUNTIME_NAME.match(each.name)] or functions


def _bodies(text: str, symbols: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        entry, label = _ENTRY.match(line), _LABEL.match(line)
        start = entry or (label if label and label[1] in symbols else None)
        if start:
            yield name, lines
            name, lines = start[1], []
        else:
            lines.append(line)
    yield name, lines


def _function(name: str, lines: list[str]) -> MachineFunction:
    """Parse a function's lines; a jump to an earlier label closes a loop."""
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    parsed: list[tuple[str, str, bool]] = []
    for line in lines:
        if label := _LABEL.match(line):
            labels[label[1]] = len(parsed)
        elif parts := _parts(line):
            for target in re.findall(r"[$.\w]+", parts[1]):
                if target in labels:
                    ends[labels[target]] = len(parsed)
            parsed.append(parts)
    loops = tuple(sorted(ends.items()))
    return MachineFunction(name, tuple(_with_depths(parsed, loops)), loops)


def _parts(line: str) -> tuple[str, str, bool] | None:
    text = _COMMENT.sub("", line).strip().rstrip(";")
    if not text or text[0] in ".{}()" or text.startswith("//"):
        return None
    unguarded = _GUARD.sub("", text)
    mnemonic, _, operands = unguarded.partition("\t" if "\t" in unguarded else " ")
    return mnemonic, operands.strip(), unguarded != text


def _with_depths(
    parsed: list[tuple[str, str, bool]], loops: tuple[tuple[int, int], ...]
) -> Iterator[MachineInstruction]:
    change = [0] * (len(parsed) + 1)
    is_leaf = [False] * len(parsed)
    for start, end in loops:
        change[start] += 1
        change[end + 1] -= 1
        if not any(start <= other < end and (other, to) != (start, end) for other, to in loops):
            is_leaf[start : end + 1] = [True] * (end + 1 - start)
    depth = 0
    for index, (mnemonic, operands, guarded) in enumerate(parsed):
        depth += change[index]
        yield MachineInstruction(mnemonic, operands, guarded, depth, is_leaf[index])
