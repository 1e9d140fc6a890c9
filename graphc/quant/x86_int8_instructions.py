"""Instructions of x86 that add products of four bytes to each number of a 32-bit vector.

They are vpdpbusd, or two vpmaddwd without it. vpmaddubsw also multiplies bytes, but sums
pairs in 16 bits, which may overflow. Data is unsigned, weights are signed.
"""

import tvm
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_pass import Leave
from mallorn.graphc.quant import dot_product_function
from mallorn.graphc.quant.dot_product_function import DotInstruction

QUAD = 4
FUNCTION = "mallorn_dot_int8"


def _format_vnni_function(lanes: int, features: str, intrinsic: str) -> str:
    vector = f"<{lanes} x i32>"
    return f"""
declare {vector} @llvm.x86.{intrinsic}({vector}, {vector}, {vector})
define linkonce_odr {vector} @{FUNCTION}({vector} %sums, {vector} %x, {vector} %w)
    alwaysinline nounwind "target-features"="{features}" {{
  %out = call {vector} @llvm.x86.{intrinsic}({vector} %sums, {vector} %x, {vector} %w)
  ret {vector} %out
}}
"""


def _format_byte_pair_function(lanes: int, features: str, intrinsic: str) -> str:
    """Return an LLVM function that multiplies a lane's even and odd bytes in 16 bits."""
    vector, pairs = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    eight, low = (f"<{', '.join([f'i16 {number}'] * 2 * lanes)}>" for number in (8, 255))
    return f"""
declare {vector} @llvm.x86.{intrinsic}({pairs}, {pairs})
define linkonce_odr {vector} @{FUNCTION}({vector} %sums, {vector} %x, {vector} %w)
    alwaysinline nounwind "target-features"="{features}" {{
  %data = bitcast {vector} %x to {pairs}
  %weights = bitcast {vector} %w to {pairs}
  %x.even = and {pairs} %data, {low}
  %x.odd = lshr {pairs} %data, {eight}
  %w.up = shl {pairs} %weights, {eight}
  %w.even = ashr {pairs} %w.up, {eight}
  %w.odd = ashr {pairs} %weights, {eight}
  %even = call {vector} @llvm.x86.{intrinsic}({pairs} %x.even, {pairs} %w.even)
  %odd = call {vector} @llvm.x86.{intrinsic}({pairs} %x.odd, {pairs} %w.odd)
  %both = add {vector} %even, %odd
  %out = add {vector} %sums, %both
  ret {vector} %out
}}
"""


# By required feature, best first: 32-bit numbers in a vector, and the function for LLVM.
FEATURES = {
    "avx512vnni": (16, _format_vnni_function(16, "+avx512f,+avx512vnni", "avx512.vpdpbusd.512")),
    "avxvnni": (8, _format_vnni_function(8, "+avx2,+avxvnni", "avx512.vpdpbusd.256")),
    "avx512bw": (16, _format_byte_pair_function(16, "+avx512f,+avx512bw", "avx512.pmaddw.d.512")),
    "avx2": (8, _format_byte_pair_function(8, "+avx2", "avx2.pmadd.wd")),
}
INSTRUCTIONS: dict[str, DotInstruction] = {}
for _feature, (_lanes, _text) in FEATURES.items():
    # Schedule rules for VNNI are named by lanes only; others have a suffix.
    _pairs = "" if _feature.endswith("vnni") else f"_{dot_product_function.PAIRS}"
    _rule = f"{FUNCTION}_{_lanes}{_pairs}"
    INSTRUCTIONS[_feature] = DotInstruction(_rule, _lanes, QUAD, "uint8", "int8", "int32")
    dot_product_function.register(INSTRUCTIONS[_feature], FUNCTION, _text)


def best_instruction() -> DotInstruction | None:
    """Return the target's best instruction for products of bytes, or None."""
    target = tvm.target.Target.current()
    if target is None or target.kind.name != "llvm":
        return None
    features = (feature for feature in INSTRUCTIONS if target_has_features(feature, target))
    return next((INSTRUCTIONS[feature] for feature in features), None)


def required_instruction() -> DotInstruction:
    """Return the target's best instruction. Raises Leave if it has none."""
    instruction = best_instruction()
    if instruction is None:
        raise Leave("the target has no instruction for 8-bit dot products")
    return instruction
