"""Multiply by constant weights with instructions that sum two 16-bit or four byte products per lane.

In bfloat16 and float16, data is rounded before a product; sums stay
float32. Weights are packed as instructions read them: vdpbf16ps computes 16 results, from
two rows of 16 columns interleaved.

An instruction for bytes sums in 32 bits and reads signed weights, and data with or without
a sign, so data of the other type is shifted by 128, and unsigned weights minus a zero point
are shifted into int8. The data's zero point, times each column's sum of weights, is
subtracted from the sums, and so is the weights' shift, times each window's sum of data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.target.codegen import target_has_features

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, Report, Unsupported, operator_name
from mallorn.graphc.core.graph_rewriting import copy_convolution, is_channels_last, permutation, sizes_of
from mallorn.graphc.quant import arm_fp16_instructions, dot_product_function, padded_sums
from mallorn.graphc.quant.dot_product_function import QUAD, DotInstruction
from mallorn.graphc.quant.int8_instructions import INSTRUCTIONS, required_instruction
from mallorn.graphc.quant.quantized_value import BYTES

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
INSTRUCTION = DotInstruction(DOT, LANES, PAIR, NARROW, NARROW, "float32", DOT, LLVM)
OFFSET = 128  # shift from signed to unsigned bytes
_EXACT = 2**24 // 255  # bytes whose sum is exact in float32
_WIDER = {"int8": ("int16", "int32"), "uint8": ("int16", "int32"), "int16": ("int32",)}

dot_product_function.register(INSTRUCTION)


@dataclass(frozen=True)
class RoundedProduct:
    """A product's data, to be rounded to bfloat16, and how the instruction reads it."""

    data: Any
    layout: padded_sums.Layout | None  # None if the instruction cannot compute its sums


class Bf16DotProducts(Pass[RoundedProduct]):
    """Multiplies by constant weights in bfloat16, two products per lane where possible."""

    name, match = "bf16_dot_products", ("relax.matmul", "relax.nn.conv2d")
    after = ("conv3x3_to_winograd",)
    rules: ClassVar[tuple[str, ...]] = (DOT,)
    narrow: ClassVar = NARROW
    instructions: ClassVar[Mapping[str, DotInstruction]] = {"avx512bf16": INSTRUCTION}

    def apply(self, mod: Any) -> tuple[Any, Report]:
        """Rewrite the module. Raises Unsupported if the target lacks products of this type."""
        target = tvm.target.Target.current()
        has = (feature for feature in self.instructions if target and target_has_features(feature, target))
        if (feature := next(has, None)) is None:
            raise Unsupported(f"the target's CPU has no {list(self.instructions)[-1]} instructions")
        self.instruction = self.instructions[feature]
        return super().apply(mod)

    def check(self, call: Any, g: Graph) -> RoundedProduct:
        data, weights = call.args
        largest = float(ml_dtypes.finfo(self.narrow).max)  # type: ignore[no-untyped-call]
        if g.is_constant(weights) and np.abs(g.array(weights)).max(initial=0) > largest:
            raise Leave(f"a weight is larger than any {self.narrow}")
        if operator_name(call) == "relax.matmul":
            padded_sums.check_weights(call, self.instruction, g)
            if sizes_of(data)[-1] % PAIR:
                raise Leave("the number of inputs of the product is odd")
            # Stacks must be rounded already.
            if data.ty.dtype != self.narrow or not weights.ty.ndim == data.ty.ndim == 3:
                padded_sums.check_rows(call)
            return RoundedProduct(data, padded_sums.describe_row_product)
        if not is_channels_last(call):
            raise Leave("the channels are not last, or the weights are computed")
        groups, channels = int(call.attrs.groups), sizes_of(data)[-1]
        if 1 < groups == channels:
            # Depthwise: the instruction does not apply, but the data to read is halved.
            if weights.ty.dtype == self.narrow:
                raise Leave(f"the factors of the convolution are {self.narrow} already")
            return RoundedProduct(data, None)
        padded_sums.check_weights(call, self.instruction, g)
        if any(int(number) != 1 for number in (*call.attrs.dilation, groups)):
            raise Leave("the convolution has dilation or groups")
        if channels % PAIR == 0:
            return RoundedProduct(data, padded_sums.describe_channel_sums)
        transpose = g.producer(data, "relax.permute_dims")
        if transpose is None or permutation(transpose) != padded_sums.FROM_PLANES:
            raise Leave("the channels are odd, and not transposed from NCHW")
        return RoundedProduct(transpose.args[0], padded_sums.describe_channels_first_sums)

    def rewrite(self, call: Any, facts: RoundedProduct, g: Graph) -> Any:
        data, weights = facts.data, g.array(call.args[1]).astype(self.narrow)
        data = data if data.ty.dtype == self.narrow else relax.op.astype(data, self.narrow)
        if facts.layout is None:
            return copy_convolution(call, data, relax.const(weights), out_dtype="float32")
        dot_sums = facts.layout(call, weights, self.instruction)
        # Pad planes even if the margins are empty: tuned tasks include this operator.
        planes = facts.layout is padded_sums.describe_channels_first_sums
        padded_data = relax.op.nn.pad(data, dot_sums.margins) if planes else dot_sums.pad(data)
        name = f"{self.name.partition('_')[0]}_{operator_name(call).rpartition('.')[2]}"
        return dot_sums.call(g, self.instruction, name, padded_data)


class Fp16DotProducts(Bf16DotProducts):
    """Multiplies by constant weights in float16, two products per lane where possible."""

    name = "fp16_dot_products"
    narrow = "float16"
    instructions = arm_fp16_instructions.INSTRUCTIONS
    rules = tuple(instruction.rule for instruction in instructions.values())


@dataclass(frozen=True)
class ByteProduct:
    """A product of bytes: instruction, data and its zero point, and constant weights."""

    instruction: DotInstruction
    data: Any
    zero: Any | None  # a 0-dimensional array, or an expression
    weights: Any  # int8, after the shift
    shift: int
    axes: tuple[int, ...] | None  # permutation of the data before the product

    @property
    def has_known_zero(self) -> bool:
        return self.zero is None or isinstance(self.zero, np.ndarray)

    @property
    def zero_byte(self) -> int:
        """The zero point: the byte that stands for zero."""
        return 0 if self.zero is None else int(self.zero)

    def ordered(self, layout: padded_sums.Layout) -> Any:
        """Return the data with its axes permuted as the given layout reads them."""
        as_it_is = self.axes is None or layout is padded_sums.describe_channels_first_sums
        return self.data if as_it_is else relax.op.permute_dims(self.data, self.axes)

    def pad(self, dot_sums: padded_sums.PaddedSums, layout: padded_sums.Layout) -> Any:
        """Return the data in the given layout, padded with its zero point."""
        data = self.ordered(layout)
        # For rows any byte may pad: their weights are zero there.
        is_row = layout is padded_sums.describe_row_product
        if is_row or not any(dot_sums.margins):
            return dot_sums.pad(data)
        if self.has_known_zero:
            return dot_sums.pad(data, self.zero_byte)
        zero = self.wide_zero("int16")
        centred = relax.op.subtract(relax.op.astype(data, "int16"), zero)
        centred = dot_sums.pad(centred)
        return relax.op.astype(relax.op.add(centred, zero), self.instruction.data)

    def wide_zero(self, dtype: str) -> Any:
        zero = relax.const(np.array(self.zero_byte)) if self.has_known_zero else self.zero
        return relax.op.astype(zero, dtype)

    def window_sums(self, call: Any) -> Any:
        """Return each row's or window's sum of the data minus its zero point, in int32."""
        data = relax.op.astype(self.ordered(padded_sums.describe_channel_sums), "int32")
        data = relax.op.subtract(data, self.wide_zero("int32"))
        sums = relax.op.sum(data, axis=-1, keepdims=True)
        if operator_name(call) == "relax.matmul":
            return sums
        ones = relax.const(np.ones((*self.weights.shape[:2], 1, 1), "float32"))
        sums = copy_convolution(call, relax.op.astype(sums, "float32"), ones, out_dtype="float32")
        return relax.op.astype(sums, "int32")

    def shifted_for_instruction(self) -> "ByteProduct":
        """Return the product with data and zero point shifted to the type that the instruction reads."""
        dtype = self.instruction.data
        if self.data.ty.dtype == dtype:
            return self
        offset = OFFSET if dtype == "uint8" else -OFFSET
        data = relax.op.astype(_shift(self.data, offset), dtype)
        zero = np.array(self.zero_byte + offset) if self.has_known_zero else _shift(self.zero, offset)
        return replace(self, data=data, zero=zero)


class Int8DotProducts(Pass[ByteProduct]):
    """Multiplies bytes by constant weights; the instruction adds four products per lane."""

    name, match = "int8_dot_products", ("relax.matmul", "relax.nn.conv2d")
    dtype = "int32"
    rules = tuple(instruction.rule for instruction in INSTRUCTIONS.values())

    def check(self, call: Any, g: Graph) -> ByteProduct:
        required_instruction()
        if operator_name(call) == "relax.matmul":
            padded_sums.check_rows(call)
        else:
            if not is_channels_last(call):
                raise Leave("the channels are not last, or the weights are computed")
            if int(call.attrs.groups) != 1:
                raise Leave("the convolution has groups")
            if sizes_of(call.args[0])[-1] % QUAD and int(call.attrs.dilation[1]) != 1:
                raise Leave("the channels are not a multiple of 4, and the convolution is dilated")
        # The factors before casts, a transpose and a zero point.
        data, zero = _strip_widening_casts(g, call.args[0]), None
        transpose = g.producer(data, "relax.permute_dims")
        if transpose is not None:
            data = _strip_widening_casts(g, transpose.args[0])
        subtraction = g.producer(data, "relax.subtract")
        if subtraction is not None and subtraction.args[1].ty.ndim == 0:
            data, zero = _strip_widening_casts(g, subtraction.args[0]), subtraction.args[1]
            zero = g.array(zero) if g.is_constant(zero) else zero
        if data.ty.dtype not in BYTES:
            raise Leave("the data is not int8 or uint8")
        instruction = required_instruction(str(data.ty.dtype))
        padded_sums.check_weights(call, instruction, g)
        weights = g.array(call.args[1]).astype("int32")
        shift = max(-OFFSET - int(weights.min()), 0) or min(OFFSET - 1 - int(weights.max()), 0)
        shifted = weights + shift
        if shifted.min() < -OFFSET or shifted.max() >= OFFSET:
            raise Leave("the weights do not fit into int8")
        if shift and shifted[..., 0].size > _EXACT:
            raise Leave("the sums of the data may not be exact in float32")
        axes = None if transpose is None else permutation(transpose)
        return ByteProduct(instruction, data, zero, shifted.astype("int8"), shift, axes)

    def rewrite(self, call: Any, facts: ByteProduct, g: Graph) -> Any:
        name, product = operator_name(call).rpartition(".")[2], facts.shifted_for_instruction()
        layout: padded_sums.Layout = padded_sums.describe_window_row_sums
        if operator_name(call) == "relax.matmul":
            layout = padded_sums.describe_row_product
        elif sizes_of(call.args[0])[-1] % QUAD == 0:
            layout = padded_sums.describe_channel_sums
        elif product.axes == padded_sums.FROM_PLANES:
            layout = padded_sums.describe_channels_first_sums
        dot_sums = layout(call, product.weights, product.instruction)
        sums = dot_sums.call(g, product.instruction, f"int8_{name}", product.pad(dot_sums, layout))
        # Subtract the shares of the zero point and of the weights' shift.
        if product.zero is not None and not (product.has_known_zero and not product.zero_byte):
            columns = product.weights.reshape(-1, product.weights.shape[-1]).sum(axis=0, dtype="int32")
            if product.has_known_zero:
                share = relax.const(columns * np.int32(product.zero_byte))
            else:
                share = relax.op.multiply(product.wide_zero("int32"), relax.const(columns))
            sums = relax.op.subtract(sums, share)
        if product.shift:
            shift = relax.const(product.shift, "int32")
            sums = relax.op.subtract(sums, relax.op.multiply(product.window_sums(call), shift))
        return sums


def _shift(value: Any, offset: int) -> Any:
    return relax.op.add(relax.op.astype(value, "int16"), relax.const(offset, "int16"))


def _strip_widening_casts(g: Graph, value: Any) -> Any:
    cast = g.producer(value, "relax.astype")
    if cast is None or cast.ty.dtype not in _WIDER.get(str(cast.args[0].ty.dtype), ()):
        return value
    return _strip_widening_casts(g, cast.args[0])
