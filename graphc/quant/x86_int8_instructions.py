"""Instructions of x86 that add products of four bytes to each number of a 32-bit vector.

They are vpdpbusd, or two vpmaddwd without it. vpmaddubsw also multiplies bytes, but sums
pairs in 16 bits, which may overflow. Data is unsigned, weights are signed.
"""

from mallorn.graphc.quant import dot_product_function
from mallorn.graphc.quant.dot_product_function import QUAD, DotInstruction

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
_FUNCTIONS = {
    "avx512vnni": (16, _format_vnni_function(16, "+avx512f,+avx512vnni", "avx512.vpdpbusd.512")),
    "avxvnni": (8, _format_vnni_function(8, "+avx2,+avxvnni", "avx512.vpdpbusd.256")),
    "avx512bw": (16, _format_byte_pair_function(16, "+avx512f,+avx512bw", "avx512.pmaddw.d.512")),
    "avx2": (8, _format_byte_pair_function(8, "+avx2", "avx2.pmadd.wd")),
}
INSTRUCTIONS: dict[str, DotInstruction] = {}
for _feature, (_lanes, _text) in _FUNCTIONS.items():
    # Schedule rules for VNNI are named by lanes only; others have a suffix.
    _pairs = "" if _feature.endswith("vnni") else f"_{dot_product_function.PAIRS}"
    _rule = f"{FUNCTION}_{_lanes}{_pairs}"
    INSTRUCTIONS[_feature] = DotInstruction(_rule, _lanes, QUAD, "uint8", "int8", "int32", FUNCTION, _text)
    dot_product_function.register(INSTRUCTIONS[_feature])
