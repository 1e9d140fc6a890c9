"""CPUs of the instruction set RISC-V, 64 bits. Every process asks this class, so it imports no TVM."""

from typing import ClassVar

from mallorn.kinds.cpu import Cpu


class Riscv64(Cpu):
    name: ClassVar = "riscv64"
    instruction_sets: ClassVar = {"riscv64": "elf64lriscv"}
    parts: ClassVar = {"CompilerKind": "mallorn_riscv64.compiler:Riscv64Compiler"}
    example: ClassVar = (
        '{"kind": "llvm", "mtriple": "riscv64-linux-gnu", "mattr": ["+m", "+a", "+f", "+d"], "mabi": "lp64d",'
        ' "num-cores": 1}'
    )
