"""Instructions of x86 that add several products of narrow numbers to each number of a vector."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tvm.target.codegen import target_has_features


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
    # Here: they register intrinsics, which `load_intrinsics` does in a fifth of the time.
    from graphc.quant.bf16_dot_products import DOT, LLVM, PAIR
    from graphc.quant.int8_instructions import FEATURES, FUNCTION, QUAD

    if target_has_features("avx512bf16", target):
        yield Dot("bfloat16", "float32", 16, PAIR, DOT, LLVM, 0x3F803F80)
    has = (feature for feature in FEATURES if target_has_features(feature, target))
    if (feature := next(has, None)) is not None:
        lanes, text = FEATURES[feature]
        yield Dot("int8", "int32", lanes, QUAD, FUNCTION, text, 0x01010101)
