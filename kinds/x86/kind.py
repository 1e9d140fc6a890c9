"""CPUs of the instruction set x86-64."""

from typing import ClassVar

from mallorn.kinds.cpu import Cpu


class X86(Cpu):
    name: ClassVar = "x86"
    parts: ClassVar = {"CompilerKind": "mallorn.kinds.x86.x86_compiler:X86Compiler"}
    instruction_sets: ClassVar = frozenset({"x86_64", "i386", "i686"})
    example: ClassVar = '{"kind": "llvm", "mcpu": "haswell", "num-cores": 4}'
