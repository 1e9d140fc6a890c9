"""Add products of two float16 numbers to each float32 number of a vector, on aarch64.

FMLAL multiplies without rounding. With float16 sums, FMLA would multiply twice as many
numbers, but sums of a few hundred products lose more than `LARGEST_ERROR_ROUNDED` allows. A
target without FMLAL converts to float32; weights are converted once for all rows of a tile.
"""

from typing import Final

from mallorn.graphc.quant import dot_product_function
from mallorn.graphc.quant.dot_product_function import DotInstruction

FUNCTION: Final = "mallorn_dot_fp16"
LANES, PAIR = 4, 2  # lanes of a vector, and products per lane
_SUMS, _HALVES = f"<{LANES} x float>", f"<{LANES * PAIR} x half>"


def _format_function(features: str, declared: str, products: str) -> str:
    return f"""{declared}
define linkonce_odr {_SUMS} @{FUNCTION}({_SUMS} %sums, <{LANES} x i32> %x, <{LANES} x i32> %w)
    alwaysinline nounwind "target-features"="{features}" {{
  %data = bitcast <{LANES} x i32> %x to {_HALVES}
  %weights = bitcast <{LANES} x i32> %w to {_HALVES}{products}
  ret {_SUMS} %out
}}
"""


def _shuffle(type_: str, value: str, *lanes: int) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return f"shufflevector {type_} {value}, {type_} poison, <{len(lanes)} x i32> <{mask}>"


_FMLAL, _FMLAL2 = (f"@llvm.aarch64.neon.{name}.v4f32.v8f16" for name in ("fmlal", "fmlal2"))
_MULTIPLIED: Final = _format_function(
    "+neon,+fullfp16,+fp16fml",
    "".join(f"\ndeclare {_SUMS} {name}({_SUMS}, {_HALVES}, {_HALVES})" for name in (_FMLAL, _FMLAL2)),
    f"""
  %even = {_shuffle(_HALVES, "%data", *[0] * 8)}
  %odd = {_shuffle(_HALVES, "%data", *[1] * 8)}
  %half = call {_SUMS} {_FMLAL}({_SUMS} %sums, {_HALVES} %weights, {_HALVES} %even)
  %out = call {_SUMS} {_FMLAL2}({_SUMS} %half, {_HALVES} %weights, {_HALVES} %odd)""",
)
_CONVERTED: Final = _format_function(
    "+neon",
    f"\ndeclare {_SUMS} @llvm.fma.v4f32({_SUMS}, {_SUMS}, {_SUMS})",
    f"""
  %numbers = fpext {_HALVES} %data to <8 x float>
  %even = {_shuffle("<8 x float>", "%numbers", *[0] * 4)}
  %odd = {_shuffle("<8 x float>", "%numbers", *[1] * 4)}
  %factors = fpext {_HALVES} %weights to <8 x float>
  %low = {_shuffle("<8 x float>", "%factors", *range(4))}
  %high = {_shuffle("<8 x float>", "%factors", *range(4, 8))}
  %half = call {_SUMS} @llvm.fma.v4f32({_SUMS} %low, {_SUMS} %even, {_SUMS} %sums)
  %out = call {_SUMS} @llvm.fma.v4f32({_SUMS} %high, {_SUMS} %odd, {_SUMS} %half)""",
)

# By required feature, the best first.
INSTRUCTIONS: Final = {
    feature: DotInstruction(
        f"{FUNCTION}_{feature}", LANES, PAIR, *("float16", "float16", "float32"), FUNCTION, text, True
    )
    for feature, text in (("fp16fml", _MULTIPLIED), ("fullfp16", _CONVERTED))
}
for _dot in INSTRUCTIONS.values():
    dot_product_function.register(_dot)
