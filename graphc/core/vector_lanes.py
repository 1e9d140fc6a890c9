"""Derive vector lanes and registers from the target, not the host, so that tasks match."""

from typing import Any

import tvm
from tvm.target.codegen import llvm_get_vector_width, target_has_features

MOST, LEAST = 16, 4  # limits of what the passes can use
# TVM assumes 512 bits for every x86.
X86 = {"avx512f": 16, "avx": 8, "sse2": 4}
FEW, MANY = 16, 32  # vector registers
X86_OPERANDS, OPERANDS = 4, 8  # those without sums; x86 reads some operands from memory


def lanes() -> int:
    """Return the current target's float32 lanes, at least 4 and at most 16; 16 for GPUs."""
    target = tvm.target.Target.current()
    if target is None or target.kind.name != "llvm":
        return MOST
    return min(max(lanes_of(target), LEAST), MOST)


def registers() -> int:
    """Return the current target's vector registers; 32 for GPUs."""
    target = tvm.target.Target.current()
    return MANY if target is None or target.kind.name != "llvm" else registers_of(target)


def registers_of(target: Any) -> int:
    """Return the vector registers of an LLVM target: x86 has 32 only with AVX-512."""
    return FEW if _is_x86(target) and not target_has_features("avx512f", target) else MANY


def sum_registers_of(target: Any) -> int:
    """Return the vector registers of an LLVM target that can hold sums."""
    return registers_of(target) - (X86_OPERANDS if _is_x86(target) else OPERANDS)


def _is_x86(target: Any) -> bool:
    return bool(target_has_features("sse2", target))


def lanes_of(target: Any) -> int:
    """Return the float32 lanes in a vector of an LLVM target, without limits."""
    if "vector-width" not in target.attrs:
        for feature, count in X86.items():
            if target_has_features(feature, target):
                return count
    return int(llvm_get_vector_width(target)) // 32
