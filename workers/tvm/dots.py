"""Instructions of x86 that add several products of narrow numbers to each number of a vector."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tvm.target.codegen import target_has_features

from workers.tvm.templates.bf16 import DOT, LLVM, PAIR
from workers.tvm.templates.int8 import FEATURES, FUNCTION, QUAD


class Dot(NamedTuple):
    """One such function: of sums, and of two vectors of 32 bits that hold the numbers."""

    dtype: str
    sums: str
    lanes: int
    each: int  # products that it adds to a number
    function: str
    text: str  # in LLVM's words
    ones: int  # 32 bits that hold ones


def dots(target: Any) -> Iterator[Dot]:
    """Those that a target has: the best of each type."""
    if target_has_features("avx512bf16", target):
        yield Dot("bfloat16", "float32", 16, PAIR, DOT, LLVM, 0x3F803F80)
    has = (feature for feature in _INT8 if target_has_features(feature, target))
    if (feature := next(has, None)) is not None:
        lanes, text = _INT8[feature]
        yield Dot("int8", "int32", lanes, QUAD, FUNCTION, text, 0x01010101)


def _in_steps(lanes: int, features: str, multiply: str, add: str) -> str:
    """Sums of two products, then of two of those: 16 bits in between, which may overflow."""
    bits, pairs, sums = f"<{4 * lanes} x i8>", f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
    ones = ", ".join(["i16 1"] * 2 * lanes)
    return f"""
declare {pairs} @llvm.x86.{multiply}({bits}, {bits})
declare {sums} @llvm.x86.{add}({pairs}, {pairs})
define linkonce_odr {sums} @{FUNCTION}({sums} %sums, {sums} %x, {sums} %w)
    alwaysinline nounwind "target-features"="{features}" {{
  %data = bitcast {sums} %x to {bits}
  %weights = bitcast {sums} %w to {bits}
  %pairs = call {pairs} @llvm.x86.{multiply}({bits} %data, {bits} %weights)
  %quads = call {sums} @llvm.x86.{add}({pairs} %pairs, {pairs} <{ones}>)
  %out = add {sums} %sums, %quads
  ret {sums} %out
}}
"""


#: By what a target must have, the best first: numbers of 32 bits in a vector, and the function.
_INT8: Final = {
    **FEATURES,
    "avx512bw": (16, _in_steps(16, "+avx512f,+avx512bw", "avx512.pmaddubs.w.512", "avx512.pmaddw.d.512")),
    "avx2": (8, _in_steps(8, "+avx2", "avx2.pmadd.ub.sw", "avx2.pmadd.wd")),
}
