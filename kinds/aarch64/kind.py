"""CPUs of Arm's 64-bit instruction set."""

from typing import ClassVar

from mallorn.kinds.cpu import Cpu


class Aarch64(Cpu):
    name: ClassVar = "aarch64"
    parts: ClassVar = {
        "CompilerKind": "mallorn.kinds.aarch64.aarch64_compiler:Aarch64Compiler",
        "RecipeKind": "mallorn.kinds.aarch64.aarch64_recipes:Aarch64Recipes",
    }
    instruction_sets: ClassVar = {"aarch64": "aarch64linux"}
    example: ClassVar = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"], "num-cores": 4}'
