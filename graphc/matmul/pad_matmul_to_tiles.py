"""Pad matrix products to sizes that can be tiled.

101 rows, for example, have no factor that suits the registers, and 101 columns do not fill
whole vectors. A few more rows and columns, kept in local buffers, cost less than bad tiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import (
    OUT_ELEMENTWISE_FUSABLE,
    numbers,
    parse_tvmscript,
    round_up_columns,
    round_up_rows,
    sizes_of,
)


@dataclass(frozen=True)
class Product:
    """y[..., i, j] += x[..., i, k] * w[..., k, j], with the order of axes in each buffer."""

    sizes: Mapping[str, int]  # size of each axis as requested
    x: Sequence[str]
    w: Sequence[str]
    y: Sequence[str]
    padded: Mapping[str, int]  # size of each axis as computed, padding included
    has_padded_w: bool = False  # whether w is a constant that is already padded
    factors: str = "float32"  # data type of x and w; sums and y are float32

    @property
    def stack(self) -> list[str]:
        return [axis for axis in self.sizes if axis not in "ijk"]


def pad_to_tiles(product: Product, lanes: int) -> Product:
    """Return the product with rows and columns padded to sizes that can be tiled."""
    rows, columns = product.sizes["i"], product.sizes["j"]
    padded_sizes = {"i": round_up_rows(rows), "j": round_up_columns(columns, lanes)}
    return replace(product, padded={**product.sizes, **padded_sizes})


def matmul_function(product: Product) -> Any:
    """Build the product's tensor function; TVM can fuse element-wise operators after it."""
    body, factors = [], []
    for name, axes in (("x", product.x), ("w", product.w)):
        if not _has_padded_axis(product, axes) or (name == "w" and product.has_padded_w):
            factors.append(_element(name, axes))
            continue
        # Copy the factor between zeros: its stack, then rows and inputs, or inputs and columns.
        last = ["i", "k"] if "i" in axes else ["k", "j"]
        canonical = [*(axis for axis in product.stack if axis in axes), *last]
        copy = _element(f"{name}_whole", canonical)
        padded_axes = [axis for axis in axes if product.padded[axis] != product.sizes[axis]]
        condition = " and ".join(f"v{axis} < {product.sizes[axis]}" for axis in padded_axes)
        value = f"T.if_then_else({condition}, {_element(name, axes)}, T.float32(0))"
        body += [
            _buffer(product, f"{name}_whole", canonical),
            _block(f"{name}_filled", canonical, product.padded, f"{copy} = {value}"),
        ]
        factors.append(copy)
    is_wide = product.factors == "float32"
    x, w = (factor if is_wide else f'T.Cast("float32", {factor})' for factor in factors)
    order = [*product.stack, "i", "j"]
    is_result_padded = _has_padded_axis(product, order)
    y = _element("z", order) if is_result_padded else _element("y", product.y)
    total = f"with T.init():\n                {y} = T.float32(0)\n            {y} = {y} + {x} * {w}"
    body.append(_block("product", [*order, "k"], product.padded, total))
    if is_result_padded:
        copy = _block("taken", order, product.sizes, f"{_element('y', product.y)} = {y}")
        body = [_buffer(product, "z", order), *body, copy]
    constant = product.padded if product.has_padded_w else product.sizes
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    {_parameter("x", product.x, product.sizes, product.factors)},
    {_parameter("w", product.w, constant, product.factors)},
    {_parameter("y", product.y, product.sizes, "float32")},
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
{"".join(body)}
""")


def _has_padded_axis(product: Product, axes: Sequence[str]) -> bool:
    return any(product.padded[axis] != product.sizes[axis] for axis in axes)


def _block(name: str, axes: Sequence[str], sizes: Mapping[str, int], body: str) -> str:
    kinds = "".join("R" if axis == "k" and name == "product" else "S" for axis in axes)
    return f"""
    for {", ".join(axes)} in T.grid({numbers(sizes[axis] for axis in axes)}):
        with T.sblock("{name}"):
            {", ".join(f"v{axis}" for axis in axes)} = T.axis.remap("{kinds}", [{", ".join(axes)}])
            {body}
"""


def _buffer(product: Product, name: str, axes: Sequence[str]) -> str:
    shape = numbers(product.padded[axis] for axis in axes)
    return f'    {name} = T.sblock_alloc_buffer(({shape},), "float32")\n'


def _parameter(name: str, axes: Sequence[str], sizes: Mapping[str, int], dtype: str) -> str:
    return f'{name}: T.Buffer(({numbers(sizes[axis] for axis in axes)},), "{dtype}")'


def _element(name: str, axes: Sequence[str]) -> str:
    return f"{name}[{', '.join(f'v{axis}' for axis in axes)}]"


class PadMatmulToTiles(Pass[Product]):
    """Pads rows and columns of products with constant weights to sizes that can be tiled."""

    name, match = "pad_matmul_to_tiles", ("relax.matmul",)

    def check(self, call: Any, g: Graph) -> Product:
        data, weights = call.args
        if not g.is_constant(weights):
            raise Leave("the second factor of the product is computed")
        if data.ty.ndim < 2:
            raise Leave("the first factor of the product is a vector")
        *stack, _, outputs = sizes_of(weights)
        if stack and tuple(stack) != sizes_of(data)[:-2]:
            raise Leave("the factors of the product are stacks of different sizes")
        *data_stack, rows, inputs = sizes_of(data)
        stack_sizes = {f"a{axis}": size for axis, size in enumerate(data_stack)}
        sizes = stack_sizes | {"i": rows, "j": outputs, "k": inputs}
        product = Product(
            sizes=sizes,
            x=[*stack_sizes, *"ik"],
            w=[*stack_sizes, *"kj"] if stack else ["k", "j"],
            y=[*stack_sizes, *"ij"],
            padded=sizes,
            has_padded_w=True,
        )
        tiled = pad_to_tiles(product, g.lanes)
        if tiled == product:
            raise Leave("the sizes of the product can be tiled already")
        if stack and tiled.padded["j"] == outputs:
            raise Leave("the product is a stack whose columns fill vectors")
        return tiled

    def rewrite(self, call: Any, facts: Product, g: Graph) -> Any:
        weights = g.array(call.args[1])
        columns = facts.padded["j"] - facts.sizes["j"]
        padded_weights = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, columns)])
        function = matmul_function(facts)
        return g.call_function("whole_matmul", function, [call.args[0], relax.const(padded_weights)], call.ty)
