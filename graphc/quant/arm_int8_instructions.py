"""Instructions of aarch64 that add products of four bytes to each number of a 32-bit vector.

USDOT multiplies unsigned data and signed weights, as x86's instructions do. SDOT multiplies
signed bytes: `Int8DotProducts` shifts unsigned data to signed once, where it is computed,
and subtracts the shift times the sums of constant weights, so the inner loop has no
correction. Without them, SMULL with pairwise sums takes six instructions for 16 products,
more than FMLA in float32, so such targets have no instruction here.
"""

from typing import Final

from mallorn.graphc.quant import dot_product_function
from mallorn.graphc.quant.dot_product_function import QUAD, DotInstruction

LANES: Final = 4


def format_dot(name: str, feature: str, instruction: str) -> str:
    """Return an LLVM function that applies an instruction to vectors of four bytes a number."""
    vector, singles = f"<{LANES} x i32>", f"<{LANES * QUAD} x i8>"
    intrinsic = f"@llvm.aarch64.neon.{instruction}.v{LANES}i32.v{LANES * QUAD}i8"
    return f"""
declare {vector} {intrinsic}({vector}, {singles}, {singles})
define linkonce_odr {vector} @{name}({vector} %sums, {vector} %x, {vector} %w)
    alwaysinline nounwind "target-features"="+neon,+{feature}" {{
  %first = bitcast {vector} %x to {singles}
  %second = bitcast {vector} %w to {singles}
  %out = call {vector} {intrinsic}({vector} %sums, {singles} %first, {singles} %second)
  ret {vector} %out
}}
"""


def _instruction(name: str, feature: str, data: str) -> DotInstruction:
    function = f"mallorn_{name}"
    text = format_dot(function, feature, name)
    return DotInstruction(f"{function}_{LANES}", LANES, QUAD, data, "int8", "int32", function, text)


# By required feature, the best first.
INSTRUCTIONS: Final = {
    "i8mm": _instruction("usdot", "i8mm", "uint8"),
    "dotprod": _instruction("sdot", "dotprod", "int8"),
}
for _dot in INSTRUCTIONS.values():
    dot_product_function.register(_dot)
