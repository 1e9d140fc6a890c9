"""Parses generated assembly into instructions with their loop depth."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"^([$.\w@]+):")
_TYPED = re.compile(r"\.type\s+([$.\w]+),\s*[@%]function")
_ENTRY = re.compile(r"^\s*\.(?:visible |weak )*(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)")  # of PTX
_GUARD = re.compile(r"^@!?%\w+\s+")
_COMMENT = re.compile(r"(?<!\s)\s*(?:#(?=[\s#]|$)|//|;\s*$).*$")  # a number of AArch64 begins with # too
# What the runtime and the C library add is equal in all programs; bodies of parallel loops are `.L__`.
_ADDED = re.compile(r"^__")


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One instruction; `depth` counts the loops around it, `innermost` tells if its loop holds no other."""

    mnemonic: str
    operands: str
    guarded: bool = False
    depth: int = 0
    innermost: bool = False


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function's instructions and loops; a loop is a jump back."""

    name: str
    instructions: tuple[MachineInstruction, ...]
    loops: tuple[tuple[int, int], ...]


def functions_of(text: str) -> list[MachineFunction]:
    """The program's own functions; all functions if names do not tell them apart."""
    named = frozenset(_TYPED.findall(text))
    found = [_function(name, lines) for name, lines in _bodies(text, named)]
    real = [function for function in found if function.instructions]
    return [function for function in real if not _ADDED.match(function.name)] or real


def _bodies(text: str, named: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        entry, label = _ENTRY.match(line), _LABEL.match(line)
        found = entry or (label if label and label[1] in named else None)
        if found:
            yield name, lines
            name, lines = found[1], []
        else:
            lines.append(line)
    yield name, lines


def _function(name: str, lines: list[str]) -> MachineFunction:
    """A function's instructions in order; a jump to an earlier label closes a loop."""
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    bare: list[tuple[str, str, bool]] = []
    for line in lines:
        if label := _LABEL.match(line):
            labels[label[1]] = len(bare)
        elif parts := _parts(line):
            for target in re.findall(r"[$.\w]+", parts[1]):
                if target in labels:
                    ends[labels[target]] = len(bare)
            bare.append(parts)
    loops = tuple(sorted(ends.items()))
    return MachineFunction(name, tuple(_nested(bare, loops)), loops)


def _parts(line: str) -> tuple[str, str, bool] | None:
    text = _COMMENT.sub("", line).strip().rstrip(";")
    if not text or text[0] in ".{}()" or text.startswith("//"):
        return None
    bare = _GUARD.sub("", text)
    mnemonic, _, operands = bare.partition("\t" if "\t" in bare else " ")
    return mnemonic, operands.strip(), bare != text


def _nested(
    bare: list[tuple[str, str, bool]], loops: tuple[tuple[int, int], ...]
) -> Iterator[MachineInstruction]:
    change = [0] * (len(bare) + 1)
    leaf = [False] * len(bare)
    for start, end in loops:
        change[start] += 1
        change[end + 1] -= 1
        if not any(start <= other < end and (other, to) != (start, end) for other, to in loops):
            leaf[start : end + 1] = [True] * (end + 1 - start)
    depth = 0
    for at, (mnemonic, operands, guarded) in enumerate(bare):
        depth += change[at]
        yield MachineInstruction(mnemonic, operands, guarded, depth, leaf[at])
