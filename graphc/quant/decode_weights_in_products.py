"""Keep constant 8- or 4-bit weights as stored on GPUs, and decode them inside products.

A vector product then reads 4 bits a weight: each row of a `uint32` matrix holds the weights
of an output, and a block of the function decodes them. Schedules inline that block.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, operator_name
from mallorn.graphc.core.graph_rewriting import (
    OUT_ELEMENTWISE_FUSABLE,
    WORK,
    numbers,
    parse_tvmscript,
    sizes_of,
)
from mallorn.graphc.quant.keep_block_quantized_weights import (
    FEW,
    BlockQuantizedWeights,
    KeepBlockQuantizedWeights,
    KeptWeights,
    block_quantized_weights,
    stored_table,
)

WIDE = "float32"
_WORD = 32  # bits


@dataclass(frozen=True)
class DecodedProduct:
    """A product of rows and weights, which are decoded to `factors`; sums are float32."""

    weights: BlockQuantizedWeights
    rows: tuple[int, ...]
    factors: str  # data type of both factors

    @property
    def bits(self) -> int:
        return 4 if self.weights.data.max(initial=0) < FEW else 8

    @property
    def per_word(self) -> int:
        return _WORD // self.bits

    @property
    def zero(self) -> int | None:
        """The zero point of all weights; None if blocks differ."""
        first = self.weights.zero.flat[0]
        return int(first) if (self.weights.zero == first).all() else None

    def packed(self) -> Any:
        """Return the weights as 32-bit words: a row per output, the first weight in the lowest bits."""
        rows = self.weights.data.T
        padding = -rows.shape[1] % self.per_word
        split = np.pad(rows, [(0, 0), (0, padding)]).reshape(len(rows), -1, self.per_word)
        shifts = np.arange(self.per_word, dtype="uint32") * np.uint32(self.bits)
        return np.bitwise_or.reduce(split.astype("uint32") << shifts, axis=-1)

    def scales(self) -> Any:
        """Return a row of scales per output, in float16 if that rounds none of them."""
        scales = np.ascontiguousarray(self.weights.scale.T)
        with np.errstate(over="ignore"):
            halves = scales.astype("float16")
        return halves if np.array_equal(halves.astype(WIDE), scales) else scales

    def zeros(self) -> Any:
        return np.ascontiguousarray(self.weights.zero.T)


def product_function(product: DecodedProduct, scale_type: str) -> Any:
    """Build the tensor function of a product; TVM can fuse element-wise operators after it."""
    inputs, outputs = product.weights.data.shape
    blocks = len(product.weights.scale)
    axes = [f"i{axis}" for axis in range(len(product.rows))]
    row, loops = ", ".join(f"v{axis}" for axis in axes), ", ".join([*axes, "j", "k"])
    per_word, block = product.per_word, inputs // blocks
    by_block, zero = numbers((outputs, blocks)), product.zero
    shift = f'T.Cast("uint32", vk % {per_word}) * T.uint32({product.bits})'
    code = (
        f"T.bitwise_and(T.shift_right(q[vj, vk // {per_word}], {shift}), T.uint32({(1 << product.bits) - 1}))"
    )
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
        constants = [facts.packed(), scales, *([] if facts.zero is not None else [facts.zeros()])]
        arguments = [data, *map(g.constant, constants)]
        return g.call_function(f"int{facts.bits}_weights", function, arguments, call.ty)
