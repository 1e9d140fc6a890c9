"""CPUs of the instruction set x86-64."""

from typing import ClassVar

from mallorn.kinds.cpu import Cpu


class X86(Cpu):
    name: ClassVar = "x86"
    parts: ClassVar = {"CompilerKind": "mallorn.kinds.x86.x86_compiler:X86Compiler"}
    instruction_sets: ClassVar = {"x86_64": "elf_x86_64"}
    example: ClassVar = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
