"""Let products read constant 8- or 4-bit weights as stored, with their scales.

Look-ups of rows in such weights decode only the rows that they read. On GPUs a product's
function decodes its weights in a block that schedules inline: a row of a `uint32` matrix
holds the weights of an output, so that a vector product reads 4 bits a weight.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import (
    OUT_ELEMENTWISE_FUSABLE,
    WORK,
    is_worth_padding,
    numbers,
    parse_tvmscript,
    permutation,
    round_up_to_vectors,
    sizes_of,
)
from mallorn.graphc.quant import block_quantized_matmul_function, llvm_byte_dot_products
from mallorn.graphc.quant.block_quantized_matmul_function import BlockQuantizedMatmul
from mallorn.graphc.quant.quantized_value import BYTES

FEW = 16  # values that four bits can hold
_SIGN = 128  # shift from signed to unsigned bytes
_PLAIN = "the weights are not dequantised from constant bytes"
_UNEVEN = "the scales of the weights are not per block along one axis"


@dataclass(frozen=True)
class BlockQuantizedWeights:
    """A matrix of unsigned bytes; each block along `axis` has a scale and a zero point."""

    data: Any
    scale: Any
    zero: Any
    axis: int  # the axis along which blocks lie

    @property
    def bits(self) -> int:
        return 4 if self.data.max(initial=0) < FEW else 8

    @property
    def common_zero(self) -> int | None:
        """The zero point of all weights; None if blocks differ."""
        first = self.zero.flat[0]
        return int(first) if (self.zero == first).all() else None

    @property
    def transposed(self) -> "BlockQuantizedWeights":
        return BlockQuantizedWeights(self.data.T, self.scale.T, self.zero.T, 1 - self.axis)

    @property
    def narrowed(self) -> "BlockQuantizedWeights":
        """The same weights shifted to 4-bit values, if their range fits."""
        low = np.uint8(min(self.data.min(initial=255), self.zero.min(initial=255)))
        fits = int(self.data.max(initial=0)) - int(low) < FEW
        return replace(self, data=self.data - low, zero=self.zero - low) if fits else self


def block_quantized_weights(matrix: Any, g: Graph) -> BlockQuantizedWeights:
    """Return the bytes and scales that a matrix is decoded from. Raises Leave if none."""
    if (call := g.producer(matrix, "relax.permute_dims")) is not None:
        quantized = block_quantized_weights(call.args[0], g)
        return quantized.transposed if permutation(call) == (1, 0) else quantized
    if (call := g.producer(matrix, "relax.reshape")) is not None:
        quantized = _decoded(call.args[0], 3, g)
        matrix, sizes, shape = sizes_of(call), quantized.data.shape, quantized.scale.shape
        if matrix == (sizes[0] * sizes[1], sizes[2]) and shape[1] == 1:
            axis, shape = 0, (sizes[0], 1, sizes[2])
        elif matrix == (sizes[0], sizes[1] * sizes[2]) and shape[2] == 1:
            axis, shape = 1, (*sizes[:2], 1)
        else:
            raise Leave(_UNEVEN)
        scale, zero = (
            np.broadcast_to(values, shape).squeeze(axis + 1) for values in (quantized.scale, quantized.zero)
        )
        return BlockQuantizedWeights(quantized.data.reshape(matrix), scale, zero, axis)
    return _decoded(matrix, 2, g)


def _decoded(value: Any, ndim: int, g: Graph) -> BlockQuantizedWeights:
    """Match (bytes - zero) * scale with `ndim` axes. Raises Leave for other expressions."""
    if (coded := g.producer(value, "relax.dequantize")) is not None:
        data, scale, zero = (_array(argument, g) for argument in coded.args)
        axis = int(coded.attrs.axis) % data.ndim
        shape = [-1 if dim == axis else 1 for dim in range(data.ndim)]
        scale, zero = (array.reshape(shape) if array.ndim else array for array in (scale, zero))
        return _with_common_shape(data, scale, zero, ndim)
    product = g.producer(value, "relax.multiply")
    if product is None:
        raise Leave(_PLAIN)
    subtraction = g.producer(product.args[0], "relax.subtract")
    wide = g.producer(product.args[0] if subtraction is None else subtraction.args[0], "relax.astype")
    if wide is None:
        raise Leave(_PLAIN)
    zero = np.zeros(()) if subtraction is None else _array(subtraction.args[1], g)
    return _with_common_shape(_array(wide.args[0], g), _array(product.args[1], g), zero, ndim)


def _array(value: Any, g: Graph) -> Any:
    if not g.is_constant(value):
        raise Leave(_PLAIN)
    return g.array(value)


def _with_common_shape(data: Any, scale: Any, zero: Any, ndim: int) -> BlockQuantizedWeights:
    """Return weights whose scales and zero points have one shape. Raises Leave if not."""
    if data.ndim != ndim or str(data.dtype) not in BYTES:
        raise Leave(_PLAIN)
    sign = _SIGN if data.dtype == np.int8 else 0
    places = np.broadcast_shapes((1,) * ndim, scale.shape, zero.shape)
    zeros = np.broadcast_to(zero, places).astype("float32") + sign
    if scale.dtype != np.float32 or (zeros != np.rint(zeros)).any() or zeros.min() < 0 or zeros.max() > 255:
        raise Leave("scales are not float32, or zero points not from 0 to 255")
    axis = 0
    if ndim == 2:  # a matrix without blocks: each column, or each row, is one block
        axis = int(places[0] != 1)
        if places[axis] != 1:
            raise Leave(_UNEVEN)
        places = (len(data), 1) if axis else (1, data.shape[1])
    scale, zeros = (np.ascontiguousarray(np.broadcast_to(values, places)) for values in (scale, zeros))
    unsigned = data.view("uint8") ^ np.uint8(sign)
    return BlockQuantizedWeights(unsigned, scale, zeros.astype("uint8"), axis)


_LONGEST, _LONG, _STEP = 256, 128, 8  # inputs per block: most, usual, and unit


@dataclass(frozen=True)
class KeptWeights:
    """Weights as stored, and the product that reads them (None for a look-up of rows)."""

    weights: BlockQuantizedWeights
    product: BlockQuantizedMatmul | None


class KeepBlockQuantizedWeights(Pass[Any]):
    """Lets products and look-ups read 8- or 4-bit weights as they are stored."""

    name, match = "keep_block_quantized_weights", ("relax.matmul", "relax.take")

    def check(self, call: Any, g: Graph) -> Any:
        instruction = llvm_byte_dot_products.best_instruction()
        if instruction is None:
            raise Leave("the target has no instruction for 8-bit dot products")
        if operator_name(call) == "relax.matmul":
            return _product(call, instruction, g)
        return stored_table(call, g)

    def rewrite(self, call: Any, facts: Any, g: Graph) -> Any:
        if facts.product is None:
            places = call.args[1]
            op, columns, sizes = relax.op, facts.weights.data.shape[1], sizes_of(places)
            scale, zero = map(relax.const, (facts.weights.scale, facts.weights.zero))
            if facts.weights.axis:
                scale, zero = (op.take(values, places, 0) for values in (scale, zero))
            table, half = facts.weights.data, columns // 2
            if table.max(initial=0) >= FEW or columns % 2:
                rows = op.take(relax.const(table), places, 0)
            else:  # store the halves of 4-bit rows in the nibbles of bytes
                nibbles = op.take(relax.const(table[:, :half] | (table[:, half:] << 4)), places, 0)
                lower = op.bitwise_and(nibbles, relax.const(np.uint8(FEW - 1)))
                rows = op.concat([lower, op.right_shift(nibbles, relax.const(np.uint8(4)))], axis=-1)
            blocks = facts.weights.scale.shape[1]
            by_block = (*sizes, blocks, columns // blocks)
            shape = (*sizes, blocks, 1) if facts.weights.axis else (*[1] * len(sizes), columns, 1)
            numbers = op.astype(op.reshape(rows, by_block), "float32")
            numbers = op.subtract(numbers, op.reshape(op.astype(zero, "float32"), shape))
            return op.reshape(op.multiply(numbers, op.reshape(scale, shape)), (*sizes, columns))
        weights, product = facts.weights, facts.product
        data, padding = call.args[0], product.blocks * product.block - len(weights.data)
        if padding:
            data = relax.op.nn.pad(data, (*[0] * (2 * data.ty.ndim - 1), padding))
        split = np.pad(weights.data, [(0, padding), (0, 0)])
        split = split.reshape(product.blocks, product.block, product.outputs)
        per_block = [weights.scale] if product.zero is not None else [weights.scale, weights.zero]
        repeated = (np.repeat(values, product.blocks // len(values), 0) for values in per_block)
        constants = [
            block_quantized_matmul_function.pack_weights(product, split),
            *(block_quantized_matmul_function.pack_by_block(product, values) for values in repeated),
        ]
        function = block_quantized_matmul_function.build_function(product)
        arguments = [data, *map(relax.const, constants)]
        return g.call_function(f"int{product.bits}_blocks", function, arguments, call.ty)


def stored_table(call: Any, g: Graph) -> KeptWeights:
    """Return the table that a look-up of rows reads as stored. Raises Leave for others."""
    if call.args[0].ty.ndim != 2 or call.attrs.axis is None or int(call.attrs.axis) % 2:
        raise Leave("the operator does not look up rows of a table")
    weights = block_quantized_weights(call.args[0], g).narrowed
    if weights.axis == 0 and len(weights.scale) > 1:
        raise Leave("the blocks of the weights span several rows")
    return KeptWeights(weights, None)


def _product(call: Any, instruction: llvm_byte_dot_products.Instruction, g: Graph) -> KeptWeights:
    """Return a matmul's weights as stored, and the product by blocks. Raises Leave."""
    data, matrix = call.args
    if not data.ty.dtype == matrix.ty.dtype == "float32":
        raise Leave("the factors are not float32")
    if not matrix.ty.ndim == 2 <= data.ty.ndim:
        raise Leave("the operator does not multiply rows with a matrix")
    if not is_worth_padding(int(call.ty.shape[-1]), instruction.lanes):
        raise Leave("the outputs fill too small a part of a vector")
    if g.producer(data, "relax.dequantize") is not None:
        raise Leave("the data is dequantised, too")
    weights = block_quantized_weights(matrix, g).narrowed
    if weights.axis:
        raise Leave("the blocks of the weights lie along the outputs")
    inputs, outputs = weights.data.shape
    stored_blocks = len(weights.scale)
    stored_block = block = inputs // stored_blocks
    if stored_blocks == 1 or block > _LONGEST:
        block = min(_LONG, round_up_to_vectors(block, _STEP))
    if block % _STEP or (stored_blocks > 1 and stored_block % block):
        raise Leave("the size of the blocks does not suit the instruction")
    rows, blocks, bits, zero = sizes_of(call)[:-1], -(-inputs // block), weights.bits, weights.common_zero
    if bits > instruction.most_bits:
        raise Leave("the instruction does not multiply unsigned weights of 8 bits")
    product = BlockQuantizedMatmul(instruction, rows, outputs, blocks, int(block), bits, zero)
    return KeptWeights(weights, product)


WIDE = "float32"
_WORD = 32  # bits


@dataclass(frozen=True)
class DecodedProduct:
    """A product of rows and weights, which are decoded to `factors`; sums are float32."""

    weights: BlockQuantizedWeights
    rows: tuple[int, ...]
    factors: str  # data type of both factors

    @property
    def per_word(self) -> int:
        return _WORD // self.weights.bits

    def packed(self) -> Any:
        """Return the weights as 32-bit words: a row per output, the first weight in the lowest bits."""
        rows = self.weights.data.T
        padding = -rows.shape[1] % self.per_word
        split = np.pad(rows, [(0, 0), (0, padding)]).reshape(len(rows), -1, self.per_word)
        shifts = np.arange(self.per_word, dtype="uint32") * np.uint32(self.weights.bits)
        return np.bitwise_or.reduce(split.astype("uint32") << shifts, axis=-1)

    def scales(self) -> Any:
        """Return a row of scales per output, in float16 if that rounds none of them."""
        scales = np.ascontiguousarray(self.weights.scale.T)
        with np.errstate(over="ignore"):
            halves = scales.astype("float16")
        return halves if np.array_equal(halves.astype(WIDE), scales) else scales


def product_function(product: DecodedProduct, scale_type: str) -> Any:
    """Build the tensor function of a product; TVM can fuse element-wise operators after it."""
    inputs, outputs = product.weights.data.shape
    blocks = len(product.weights.scale)
    axes = [f"i{axis}" for axis in range(len(product.rows))]
    row, loops = ", ".join(f"v{axis}" for axis in axes), ", ".join([*axes, "j", "k"])
    per_word, block = product.per_word, inputs // blocks
    by_block, zero, bits = numbers((outputs, blocks)), product.weights.common_zero, product.weights.bits
    shift = f'T.Cast("uint32", vk % {per_word}) * T.uint32({bits})'
    code = f"T.bitwise_and(T.shift_right(q[vj, vk // {per_word}], {shift}), T.uint32({(1 << bits) - 1}))"
    origin = f"T.float32({zero})" if zero is not None else f'T.Cast("float32", z[vj, vk // {block}])'
    scale = f"s[vj, vk // {block}]" if scale_type == WIDE else f'T.Cast("float32", s[vj, vk // {block}])'
    number = f'(T.Cast("float32", {code}) - {origin}) * {scale}'
    x, w = f"x[{row}, vk]", "w[vj, vk]"
    if product.factors != WIDE:
        x, w, number = (
            f'T.Cast("{dtype}", {text})' for dtype, text in ((WIDE, x), (WIDE, w), (product.factors, number))
        )
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({numbers((*product.rows, inputs))}), "{product.factors}"),
    q: T.Buffer(({numbers((outputs, -(-inputs // per_word)))}), "uint32"),
    s: T.Buffer(({by_block}), "{scale_type}"),
    {"" if zero is not None else f'z: T.Buffer(({by_block}), "uint8"),'}
    y: T.Buffer(({numbers((*product.rows, outputs))}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
    w = T.sblock_alloc_buffer(({numbers((outputs, inputs))}), "{product.factors}")
    for j, k in T.grid({numbers((outputs, inputs))}):
        with T.sblock("decoded"):
            vj, vk = T.axis.remap("SS", [j, k])
            T.sblock_attr({{"{WORK}": 0}})
            w[vj, vk] = {number}
    for {loops} in T.grid({numbers((*product.rows, outputs, inputs))}):
        with T.sblock("product"):
            {row}, vj, vk = T.axis.remap("{"S" * (len(axes) + 1)}R", [{loops}])
            with T.init():
                y[{row}, vj] = T.float32(0)
            y[{row}, vj] = y[{row}, vj] + {x} * {w}
""")


class DecodeWeightsInProducts(KeepBlockQuantizedWeights):
    """Lets products and look-ups on GPUs read 8- or 4-bit weights as they are stored."""

    name = "decode_weights_in_products"

    def __init__(self, factors: str = WIDE) -> None:
        super().__init__()
        self.factors = factors

    def check(self, call: Any, g: Graph) -> KeptWeights | DecodedProduct:
        if operator_name(call) != "relax.matmul":
            return stored_table(call, g)
        data, matrix = call.args
        if not data.ty.dtype == matrix.ty.dtype == WIDE:
            raise Leave("the factors are not float32")
        if not matrix.ty.ndim == 2 <= data.ty.ndim:
            raise Leave("the operator does not multiply rows with a matrix")
        weights = block_quantized_weights(matrix, g).narrowed
        if weights.axis:
            raise Leave("the blocks of the weights lie along the outputs")
        return DecodedProduct(weights, sizes_of(call)[:-1], self.factors)

    def rewrite(self, call: Any, facts: KeptWeights | DecodedProduct, g: Graph) -> Any:
        if isinstance(facts, KeptWeights):
            return super().rewrite(call, facts, g)
        data = call.args[0] if facts.factors == WIDE else relax.op.astype(call.args[0], facts.factors)
        scales = facts.scales()
        function = product_function(facts, str(scales.dtype))
        constants = [facts.packed(), scales]
        if facts.weights.common_zero is None:
            constants.append(np.ascontiguousarray(facts.weights.zero.T))
        arguments = [data, *map(g.constant, constants)]
        return g.call_function(f"int{facts.weights.bits}_weights", function, arguments, call.ty)
