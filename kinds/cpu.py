"""What all CPUs have in common: TVM compiles for them by LLVM or to C."""

import platform
from typing import ClassVar

from mallorn.core.target_kind import TargetAttrs, TargetKind
from mallorn.core.targets import NATIVE, SAME_SETS, instruction_set


class Cpu(TargetKind):
    """CPUs of one instruction set. A target without `mtriple` is for the host that builds."""

    tvm_kinds: ClassVar = frozenset({"llvm", "c"})

    def owns(self, attrs: TargetAttrs) -> bool:
        machine = platform.machine().lower()
        return (instruction_set(attrs) or SAME_SETS.get(machine, machine)) in self.instruction_sets

    def toolchain(self, attrs: TargetAttrs) -> str:
        return instruction_set(attrs) or NATIVE
