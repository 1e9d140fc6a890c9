"""Parse generated assembly into instructions with their loop depth."""

import re
from dataclasses import dataclass
from itertools import accumulate

_LABEL = re.compile(r"^([$.\w@]+):")
_TYPED = re.compile(r"\.type\s+([$.\w]+),\s*[@%]function")
_ENTRY = re.compile(r"^\s*\.(?:visible |weak )*(?:entry|func)\s+(?:\([^)]*\)\s*)?(\w+)")  # of PTX
_GUARD = re.compile(r"^@!?%\w+\s+")
_COMMENT = re.compile(r"(?<!\s)\s*(?:#(?=[\s#]|$)|//|;\s*$).*$")  # not AArch64's #immediates
# Functions of the runtime and the C library. Bodies of parallel loops begin with `.L__`.
_RUNTIME_NAME = re.compile(r"^__")


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """An instruction inside `depth` loops; `innermost` if its loop contains no other."""

    mnemonic: str
    operands: str
    guarded: bool = False
    depth: int = 0
    innermost: bool = False


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function's instructions, and its loops as indices of first and last instruction."""

    name: str
    instructions: tuple[MachineInstruction, ...]
    loops: tuple[tuple[int, int], ...]


def functions_of(text: str) -> list[MachineFunction]:
    """Return assembly's functions, without the runtime's (prefix `__`) if others exist."""
    symbols = frozenset(_TYPED.findall(text))
    lines: list[str] = []
    bodies = [("", lines)]
    for line in text.splitlines():
        entry, label = _ENTRY.match(line), _LABEL.match(line)
        start = entry or (label if label and label[1] in symbols else None)
        if start:
            lines = []
            bodies.append((start[1], lines))
        else:
            lines.append(line)
    functions = [_parse_function(name, lines) for name, lines in bodies]
    functions = [function for function in functions if function.instructions]
    return [item for item in functions if not _RUNTIME_NAME.match(item.name)] or functions


def _parse_function(name: str, lines: list[str]) -> MachineFunction:
    """Parse a function; each jump to an earlier label counts as the end of a loop."""
    index_of_label: dict[str, int] = {}
    ends: dict[int, int] = {}
    parsed_lines: list[tuple[str, str, bool]] = []  # mnemonic, operands, whether guarded
    for line in lines:
        if label := _LABEL.match(line):
            index_of_label[label[1]] = len(parsed_lines)
            continue
        text = _COMMENT.sub("", line).strip().rstrip(";")
        if not text or text[0] in ".{}()" or text.startswith("//"):
            continue
        unguarded = _GUARD.sub("", text)
        mnemonic, _, operands = unguarded.partition("\t" if "\t" in unguarded else " ")
        operands = operands.strip()
        for target in re.findall(r"[$.\w]+", operands):
            if target in index_of_label:
                ends[index_of_label[target]] = len(parsed_lines)
        parsed_lines.append((mnemonic, operands, unguarded != text))
    loops = tuple(sorted(ends.items()))

    depth_changes = [0] * (len(parsed_lines) + 1)
    is_innermost = [False] * len(parsed_lines)
    for start, end in loops:
        depth_changes[start] += 1
        depth_changes[end + 1] -= 1
        if not any(start <= first < end and (first, last) != (start, end) for first, last in loops):
            is_innermost[start : end + 1] = [True] * (end + 1 - start)
    rows = zip(parsed_lines, accumulate(depth_changes), is_innermost, strict=False)
    instructions = [
        MachineInstruction(mnemonic, operands, guarded, depth, innermost)
        for (mnemonic, operands, guarded), depth, innermost in rows
    ]
    return MachineFunction(name, tuple(instructions), loops)
