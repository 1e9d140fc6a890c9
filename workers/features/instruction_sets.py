"""Classify the instructions of x86 (AT&T syntax), AArch64 and PTX for cost models."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mallorn.workers.features.assembly_parser import MachineInstruction


class Does(StrEnum):
    """Kinds of instructions that are counted separately."""

    FMA = "fma"
    MULTIPLY = "multiply"
    ADD = "add"
    DIVIDE = "divide"
    LIMIT = "limit"
    COMPARE = "compare"
    CONVERT = "convert"
    SHUFFLE = "shuffle"
    BRANCH = "branch"
    JUMP = "jump"
    CALL = "call"
    PREFETCH = "prefetch"
    BARRIER = "barrier"
    MOVE = "move"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """Regular expressions that classify instructions; the first match decides."""

    work: tuple[tuple[Does, re.Pattern[str]], ...]
    vectors: tuple[tuple[int, re.Pattern[str]], ...]  # vector width in bytes
    memory: re.Pattern[str]
    stack: re.Pattern[str]
    store: re.Pattern[str]
    no_access: re.Pattern[str]
    register: re.Pattern[str]

    def kind_of(self, instruction: MachineInstruction) -> Does:
        """Return the kind of an instruction. A predicated PTX jump counts as a branch."""
        kind = next((kind for kind, names in self.work if names.match(instruction.mnemonic)), Does.OTHER)
        return Does.BRANCH if kind is Does.JUMP and instruction.guarded else kind

    def width_bytes(self, instruction: MachineInstruction) -> int:
        """Return the bytes of the widest vector that the instruction uses; 0 if none."""
        text = f"{instruction.mnemonic} {instruction.operands}"
        return next((width for width, pattern in self.vectors if pattern.search(text)), 0)

    def memory_accesses(self, instruction: MachineInstruction) -> tuple[bool, bool]:
        text = f"{instruction.mnemonic} {instruction.operands}"
        if not self.memory.search(text) or self.no_access.match(instruction.mnemonic):
            return False, False
        stores = bool(self.store.search(text))
        return not stores, stores

    def uses_stack(self, instruction: MachineInstruction) -> bool:
        """Return whether the instruction accesses the stack, mostly to spill a register."""
        return bool(self.stack.search(f"{instruction.mnemonic} {instruction.operands}"))


def _compile_kind_patterns(**patterns: str) -> tuple[tuple[Does, re.Pattern[str]], ...]:
    return tuple((Does[name.upper()], re.compile(pattern)) for name, pattern in patterns.items())


def _compile_width_patterns(*patterns: tuple[int, str]) -> tuple[tuple[int, re.Pattern[str]], ...]:
    return tuple((width, re.compile(pattern)) for width, pattern in patterns)


_FLOAT: Final = r"(?:ps|pd|ph|ss|sd|sh)$"

X86: Final = InstructionSet(
    work=_compile_kind_patterns(
        fma=r"vf(?:n?madd|n?msub)|vpdp|vdp",
        multiply=rf"v?mul{_FLOAT}|v?p(?:mul|madd)",
        add=rf"v?(?:add|sub){_FLOAT}|v?p(?:add|sub)",
        divide=rf"v?(?:div|sqrt|rcp\d*|rsqrt\d*){_FLOAT}",
        limit=rf"v?(?:min|max){_FLOAT}|v?p(?:min|max)",
        compare=r"v?u?com|v?cmp.*p[sdh]|v?p?blend|v?pcmp|cmp[bwlq]|test",
        convert=r"v?cvt|vpmov|v?p?mov[sz]x",
        shuffle=r"v?p?(?:shuf|perm|unpck|unpack|insert|extract|align|broadcast)|vzero",
        call=r"call",
        jump=r"jmp",
        branch=r"j[a-z]+",
        prefetch=r"prefetch",
        barrier=r"[ms]fence|lock",
        move=r"v?mov|v?lddqu|push|pop|cmov",
    ),
    vectors=_compile_width_patterns(
        (64, r"%zmm"), (32, r"%ymm"), (4, r"\w(?:ss|sd|sh) |v?movd |v?movq .*%xmm"), (16, r"%xmm")
    ),
    memory=re.compile(r"\(%|\(,%|\(%rip|^v?p?gather|^push|^pop"),
    stack=re.compile(r"\(%[re](?:sp|bp)|^push|^pop"),
    store=re.compile(r"\)\s*(?:\{%k\d\})?$(?<!\{1to\d\})|^push"),
    no_access=re.compile(r"lea|prefetch|nop|j|call|cmp[bwlq]|test"),
    register=re.compile(r"%[xyz]mm(\d+)"),
)
ARM64: Final = InstructionSet(
    work=_compile_kind_patterns(
        fma=r"f?n?m(?:la|ls|add|sub)|(?:us|su|[su]|bf)(?:dot|mmla)",
        multiply=r"f?n?mul|[su]mull",
        add=r"fadd|fsub|add|sub|faddp|addp|addv",
        divide=r"fdiv|[su]div|fsqrt|frecp|frsqrt",
        limit=r"f(?:min|max)|[su](?:min|max)",
        compare=r"fcm|fccmp|cmp|cm[a-z]{2}$|tst|bsl|bit|bif|csel|fcsel",
        convert=r"[su]cvtf|fcvt|[su]xt|xtn|[su]shll",
        shuffle=r"dup|zip|uzp|trn|ext|tbl|ins|rev",
        call=r"blr?$",
        jump=r"b$|br$",
        branch=r"b\.|cbn?z|tbn?z",
        prefetch=r"prfm",
        barrier=r"dmb|dsb|isb",
        move=r"f?mov|ld|st",
    ),
    vectors=_compile_width_patterns(
        (16, r"\b(?:q\d|v\d+\.(?:4s|2d|8h|16b)|v\d+\.[sdhb]\[)"), (8, r"\bv\d+\.|\bd\d"), (4, r"\bs\d")
    ),
    memory=re.compile(r"\["),
    stack=re.compile(r"\[(?:sp|x29)"),
    store=re.compile(r"^st"),
    no_access=re.compile(r"prfm|f?mov|f?m(?:la|ls|ul)|dup|ins|(?!ld|st)"),
    register=re.compile(r"\b[vqds](\d+)\b"),
)
PTX: Final = InstructionSet(
    work=_compile_kind_patterns(
        fma=r"fma|mad|[wm]*mma",
        multiply=r"mul",
        add=r"add|sub",
        divide=r"div|rcp|sqrt|rsqrt|ex2|lg2|rem",
        limit=r"min|max",
        compare=r"setp|selp|slct",
        convert=r"cvt(?!a)",
        shuffle=r"shfl|prmt|bfe|bfi",
        call=r"call",
        jump=r"bra",
        barrier=r"bar|membar|cp\.async",
        prefetch=r"prefetch",
        move=r"mov|ld|st|cvta",
    ),
    vectors=_compile_width_patterns((16, r"\.v4\.|ldmatrix|mma"), (8, r"\.v2\.|\.f64"), (4, r"\.[fb]32")),
    memory=re.compile(r"^(?:ld|st|atom|red|cp)"),
    stack=re.compile(r"^(?:ld|st)\.local"),
    store=re.compile(r"^(?:st|red)"),
    no_access=re.compile(r"ld\.param"),
    register=re.compile(r"%(?:f|r|rd|h)(\d+)\b"),
)


def instruction_set(target_kind: str, text: str) -> InstructionSet:
    if target_kind != "llvm":
        return PTX
    return ARM64 if re.search(r"^\tldr\t|^\tstp\t|^\tadrp\t", text, re.MULTILINE) else X86
