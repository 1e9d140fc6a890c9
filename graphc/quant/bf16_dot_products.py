"""Multiply by constant weights in bfloat16: two products per lane, summed in float32.

Data is rounded before a product; sums stay float32. The instruction vdpbf16ps computes 16
results, so weights are packed as it reads them: two rows of 16 columns interleaved.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import tvm
from tvm import relax
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, Report, Unsupported, operator_name
from mallorn.graphc.core.graph_rewriting import copy_convolution, is_channels_last, permutation, sizes_of
from mallorn.graphc.quant import dot_product_function, padded_sums
from mallorn.graphc.quant.dot_product_function import DotInstruction
from mallorn.graphc.quant.padded_sums import FROM_PLANES, Layout

LANES, PAIR = 16, 2  # lanes of the instruction, and products per lane
DOT = "mallorn_dot_bf16"

_LLVM_DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"
# TVM stores bfloat16 as integers on CPUs; this function passes them to LLVM as bfloat16.
LLVM = f"""
declare <16 x float> {_LLVM_DOT}(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr <16 x float> @{DOT}(<16 x float> %sums, <16 x i32> %x, <16 x i32> %w)
    alwaysinline nounwind "target-features"="+avx512f,+avx512bf16" {{
  %data = bitcast <16 x i32> %x to <32 x bfloat>
  %weights = bitcast <16 x i32> %w to <32 x bfloat>
  %out = call <16 x float> {_LLVM_DOT}(<16 x float> %sums, <32 x bfloat> %data, <32 x bfloat> %weights)
  ret <16 x float> %out
}}
"""

NARROW = "bfloat16"
INSTRUCTION = DotInstruction(DOT, LANES, PAIR, NARROW, NARROW, "float32")
dot_product_function.register(INSTRUCTION, DOT, LLVM)


@dataclass(frozen=True)
class RoundedProduct:
    """A product's data, to be rounded to bfloat16, and how the instruction reads it."""

    data: Any
    layout: Layout | None  # None if the instruction cannot compute its sums


class Bf16DotProducts(Pass[RoundedProduct]):
    """Multiplies by constant weights in bfloat16, two products per lane where possible."""

    name, match = "bf16_dot_products", ("relax.matmul", "relax.nn.conv2d")
    after = ("conv3x3_to_winograd",)
    rules = (DOT,)

    def apply(self, mod: Any) -> tuple[Any, Report]:
        """Rewrite the module. Raises Unsupported if the target lacks bfloat16 products."""
        target = tvm.target.Target.current()
        if target is None or not target_has_features("avx512bf16", target):
            raise Unsupported("the target's CPU has no avx512bf16 instructions")
        return super().apply(mod)

    def check(self, call: Any, g: Graph) -> RoundedProduct:
        data, weights = call.args
        if operator_name(call) == "relax.matmul":
            padded_sums.check_weights(call, INSTRUCTION, g)
            if sizes_of(data)[-1] % PAIR:
                raise Leave("the number of inputs of the product is odd")
            # Stacks must be rounded already.
            if data.ty.dtype != NARROW or not weights.ty.ndim == data.ty.ndim == 3:
                padded_sums.check_rows(call)
            return RoundedProduct(data, padded_sums.describe_row_product)
        if not is_channels_last(call):
            raise Leave("the channels are not last, or the weights are computed")
        groups, channels = int(call.attrs.groups), sizes_of(data)[-1]
        if 1 < groups == channels:
            # Depthwise: the instruction does not apply, but the data to read is halved.
            if weights.ty.dtype == NARROW:
                raise Leave("the factors of the convolution are bfloat16 already")
            return RoundedProduct(data, None)
        padded_sums.check_weights(call, INSTRUCTION, g)
        if any(int(number) != 1 for number in (*call.attrs.dilation, groups)):
            raise Leave("the convolution has dilation or groups")
        if channels % PAIR == 0:
            return RoundedProduct(data, padded_sums.describe_channel_sums)
        transpose = g.producer(data, "relax.permute_dims")
        if transpose is None or permutation(transpose) != FROM_PLANES:
            raise Leave("the channels are odd, and not transposed from NCHW")
        return RoundedProduct(transpose.args[0], padded_sums.describe_channels_first_sums)

    def rewrite(self, call: Any, facts: RoundedProduct, g: Graph) -> Any:
        data, weights = facts.data, g.array(call.args[1]).astype(ml_dtypes.bfloat16)
        data = data if data.ty.dtype == NARROW else relax.op.astype(data, NARROW)
        if facts.layout is None:
            return copy_convolution(call, data, relax.const(weights), out_dtype="float32")
        dot_sums = facts.layout(call, weights, INSTRUCTION)
        # Pad planes even if the margins are empty: tuned tasks include this operator.
        planes = facts.layout is padded_sums.describe_channels_first_sums
        padded_data = relax.op.nn.pad(data, dot_sums.margins) if planes else dot_sums.pad(data)
        return dot_sums.call(g, INSTRUCTION, f"bf16_{operator_name(call).rpartition('.')[2]}", padded_data)
