"""Multiply bytes by constant weights: four products per lane, summed in 32 bits.

The instruction reads unsigned data and signed weights, so signed data is shifted up by 128.
The data's zero point, times each column's sum of weights, is subtracted from the sums.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import is_channels_last, permutation, sizes_of
from mallorn.graphc.quant import padded_sums
from mallorn.graphc.quant.dot_product_function import DotInstruction
from mallorn.graphc.quant.padded_sums import FROM_PLANES, Layout
from mallorn.graphc.quant.quantized_value import BYTES
from mallorn.graphc.quant.x86_int8_instructions import INSTRUCTIONS, QUAD, required_instruction

OFFSET = 128  # shift from signed to unsigned bytes
_WIDER = {"int8": ("int16", "int32"), "uint8": ("int16", "int32"), "int16": ("int32",)}


@dataclass(frozen=True)
class ByteProduct:
    """A product of bytes: instruction, data and its zero point, and constant weights."""

    instruction: DotInstruction
    data: Any
    zero: Any | None  # a 0-dimensional array, or an expression
    weights: Any
    axes: tuple[int, ...] | None  # permutation of the data before the product

    @property
    def has_known_zero(self) -> bool:
        return self.zero is None or isinstance(self.zero, np.ndarray)

    @property
    def zero_byte(self) -> int:
        """The zero point: the byte that stands for zero."""
        return 0 if self.zero is None else int(self.zero)

    def ordered(self, layout: Layout) -> Any:
        """Return the data with its axes permuted as the given layout reads them."""
        as_it_is = self.axes is None or layout is padded_sums.describe_channels_first_sums
        return self.data if as_it_is else relax.op.permute_dims(self.data, self.axes)

    def without_sign(self) -> "ByteProduct":
        if self.data.ty.dtype == "uint8":
            return self
        data = relax.op.astype(_shift_to_unsigned(self.data), "uint8")
        zero = np.array(self.zero_byte + OFFSET) if self.has_known_zero else _shift_to_unsigned(self.zero)
        return replace(self, data=data, zero=zero)


class Int8DotProducts(Pass[ByteProduct]):
    """Multiplies bytes by constant weights; the instruction adds four products per lane."""

    name, match = "int8_dot_products", ("relax.matmul", "relax.nn.conv2d")
    dtype = "int32"
    rules = tuple(instruction.rule for instruction in INSTRUCTIONS.values())

    def check(self, call: Any, g: Graph) -> ByteProduct:
        instruction = required_instruction()
        if operator_name(call) == "relax.matmul":
            padded_sums.check_rows(call)
        else:
            if not is_channels_last(call):
                raise Leave("the channels are not last, or the weights are computed")
            if int(call.attrs.groups) != 1:
                raise Leave("the convolution has groups")
            if sizes_of(call.args[0])[-1] % QUAD and int(call.attrs.dilation[1]) != 1:
                raise Leave("the channels are not a multiple of 4, and the convolution is dilated")
        padded_sums.check_weights(call, instruction, g)

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
        weights = g.array(call.args[1])
        if weights.min() < -OFFSET or weights.max() >= OFFSET:
            raise Leave("the weights do not fit into int8")
        axes = None if transpose is None else permutation(transpose)
        product = ByteProduct(instruction, data, zero, weights.astype("int8"), axes)
        if operator_name(call) != "relax.matmul" and not product.has_known_zero:
            raise Leave("the zero point is computed")
        return product

    def rewrite(self, call: Any, facts: ByteProduct, g: Graph) -> Any:
        name, product = operator_name(call).rpartition(".")[2], facts.without_sign()
        layout: Layout = padded_sums.describe_window_row_sums
        if operator_name(call) == "relax.matmul":
            layout = padded_sums.describe_row_product
        elif sizes_of(call.args[0])[-1] % QUAD == 0:
            layout = padded_sums.describe_channel_sums
        elif product.axes == FROM_PLANES:
            layout = padded_sums.describe_channels_first_sums
        dot_sums = layout(call, product.weights, product.instruction)
        # For rows any byte may pad: their weights are zero there.
        pad_value = 0 if layout is padded_sums.describe_row_product else product.zero_byte
        data = dot_sums.pad(product.ordered(layout), pad_value)
        # Subtract the zero point's share of the sums.
        sums = dot_sums.call(g, product.instruction, f"int8_{name}", data)
        if product.zero is None or (product.has_known_zero and not product.zero_byte):
            return sums
        columns = product.weights.reshape(-1, product.weights.shape[-1]).sum(axis=0, dtype="int32")
        if product.has_known_zero:
            return relax.op.subtract(sums, relax.const(columns * np.int32(product.zero_byte)))
        zero = relax.op.astype(product.zero, "int32")
        return relax.op.subtract(sums, relax.op.multiply(zero, relax.const(columns)))


def _shift_to_unsigned(value: Any) -> Any:
    return relax.op.add(relax.op.astype(value, "int16"), relax.const(OFFSET, "int16"))


def _strip_widening_casts(g: Graph, value: Any) -> Any:
    cast = g.producer(value, "relax.astype")
    if cast is None or cast.ty.dtype not in _WIDER.get(str(cast.args[0].ty.dtype), ()):
        return value
    return _strip_widening_casts(g, cast.args[0])
