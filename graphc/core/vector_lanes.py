"""The float32 numbers in a vector of the target: a fact of the target, so tasks are equal on all hosts."""

from typing import Any

import tvm
from tvm.target.codegen import llvm_get_vector_width, target_has_features

MOST, LEAST = 16, 4  # what the passes beside this file can use
# TVM itself says 512 bits of every x86.
X86 = {"avx512f": 16, "avx": 8, "sse2": 4}


def lanes() -> int:
    """The argument of passes that lay out vectors; the most for targets of which LLVM does not tell."""
    target = tvm.target.Target.current()
    if target is None or target.kind.name != "llvm":
        return MOST
    return min(max(lanes_of(target), LEAST), MOST)


def lanes_of(target: Any) -> int:
    """The same of an LLVM target, however many."""
    if "vector-width" not in target.attrs:
        for feature, count in X86.items():
            if target_has_features(feature, target):
                return count
    return int(llvm_get_vector_width(target)) // 32
