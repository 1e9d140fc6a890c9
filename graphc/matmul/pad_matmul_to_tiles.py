"""Build matrix products whose sizes can be tiled, and pad products with constant factors to them.

101 rows have no factor that fits the registers, and 101 columns fill no vectors. A few more in
local buffers cost less than bad tiles. Only the requested part is copied out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph_pass import Graph, Leave, Pass
from graphc.core.graph_rewriting import (
    OUT_ELEMENTWISE_FUSABLE,
    numbers,
    parsed,
    sizes_of,
    whole_columns,
    whole_rows,
)


@dataclass(frozen=True)
class Product:
    """y[..., i, j] += x[..., i, k] * w[..., k, j]; each buffer has its own order of axes."""

    sizes: Mapping[str, int]  # size of each axis as requested
    x: Sequence[str]
    w: Sequence[str]
    y: Sequence[str]
    whole: Mapping[str, int]  # size of each axis as computed, padding included
    w_is_whole: bool = False  # whether w is a constant that is already padded

    @property
    def stack(self) -> list[str]:
        return [axis for axis in self.sizes if axis not in "ijk"]


def tileable(product: Product, lanes: int) -> Product:
    """Return the product with rows and columns padded to sizes that can be tiled."""
    rows, columns = product.sizes["i"], product.sizes["j"]
    padded = {"i": whole_rows(rows), "j": whole_columns(columns, lanes)}
    return replace(product, whole={**product.sizes, **padded})


def matmul_function(product: Product) -> Any:
    """Return the tensor function; TVM can fuse element-wise operators after it."""
    filled = {"x": product.x, "w": product.w} if not product.w_is_whole else {"x": product.x}
    filled = {name: axes for name, axes in filled.items() if _grows(product, axes)}
    order = [*product.stack, "i", "j"]
    copies = [_copy(product, name, axes) for name, axes in filled.items()]
    result = ("z", order) if _grows(product, order) else ("y", product.y)
    y, x, w = _at(*result), *(_read(product, name, filled) for name in ("x", "w"))
    total = f"with T.init():\n                {y} = T.float32(0)\n            {y} = {y} + {x} * {w}"
    body = [*copies, _block("product", [*order, "k"], product.whole, total)]
    if result[0] == "z":
        taken = _block("taken", order, product.sizes, f"{_at('y', product.y)} = {_at('z', order)}")
        body = [_buffer(product, "z", order), *body, taken]
    constant = product.whole if product.w_is_whole else product.sizes
    return parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    {_parameter("x", product.x, product.sizes)},
    {_parameter("w", product.w, constant)},
    {_parameter("y", product.y, product.sizes)},
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
{"".join(body)}
""")


def _grows(product: Product, axes: Sequence[str]) -> bool:
    return any(product.whole[axis] != product.sizes[axis] for axis in axes)


def _canonical(product: Product, axes: Sequence[str]) -> list[str]:
    """Return a factor's axes: the stack, then rows and inputs, or inputs and columns."""
    last = ["i", "k"] if "i" in axes else ["k", "j"]
    return [*(axis for axis in product.stack if axis in axes), *last]


def _read(product: Product, name: str, filled: Mapping[str, Sequence[str]]) -> str:
    axes = getattr(product, name)
    return _at(f"{name}_whole", _canonical(product, axes)) if name in filled else _at(name, axes)


def _copy(product: Product, name: str, axes: Sequence[str]) -> str:
    order = _canonical(product, axes)
    padded_axes = [axis for axis in axes if product.whole[axis] != product.sizes[axis]]
    inside = " and ".join(f"v{axis} < {product.sizes[axis]}" for axis in padded_axes)
    value = f"T.if_then_else({inside}, {_at(name, axes)}, T.float32(0))"
    block = _block(f"{name}_filled", order, product.whole, f"{_at(f'{name}_whole', order)} = {value}")
    return _buffer(product, f"{name}_whole", order) + block


def _block(name: str, axes: Sequence[str], sizes: Mapping[str, int], body: str) -> str:
    kinds = "".join("R" if axis == "k" and name == "product" else "S" for axis in axes)
    return f"""
    for {", ".join(axes)} in T.grid({numbers(sizes[axis] for axis in axes)}):
        with T.sblock("{name}"):
            {", ".join(f"v{axis}" for axis in axes)} = T.axis.remap("{kinds}", [{", ".join(axes)}])
            {body}
"""


def _buffer(product: Product, name: str, axes: Sequence[str]) -> str:
    shape = numbers(product.whole[axis] for axis in axes)
    return f'    {name} = T.sblock_alloc_buffer(({shape},), "float32")\n'


def _parameter(name: str, axes: Sequence[str], sizes: Mapping[str, int]) -> str:
    return f'{name}: T.Buffer(({numbers(sizes[axis] for axis in axes)},), "float32")'


def _at(name: str, axes: Sequence[str]) -> str:
    return f"{name}[{', '.join(f'v{axis}' for axis in axes)}]"


class PadMatmulToTiles(Pass[Product]):
    """Pads rows and columns of products with weights, so that their sizes can be tiled."""

    name, match = "matmul.pad_to_tiles", ("relax.matmul",)

    def check(self, call: Any, g: Graph) -> Product:
        data, weights = call.args
        if not g.is_constant(weights):
            raise Leave("its second factor is computed")
        if data.ty.ndim < 2:
            raise Leave("its first factor is a vector")
        *stack, _, outputs = sizes_of(weights)
        if stack and tuple(stack) != sizes_of(data)[:-2]:
            raise Leave("its factors are stacks of other sizes")
        product = _product(sizes_of(data), outputs, is_stack=bool(stack))
        tiled = tileable(product, g.lanes)
        if tiled == product:
            raise Leave("its sizes can be tiled")
        if stack and tiled.whole["j"] == outputs:
            raise Leave("it is a stack whose columns fill vectors")
        return tiled

    def rewrite(self, call: Any, facts: Product, g: Graph) -> Any:
        weights = g.array(call.args[1])
        columns = facts.whole["j"] - facts.sizes["j"]
        filled = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, columns)])
        function = matmul_function(facts)
        return g.call_function("whole_matmul", function, [call.args[0], relax.const(filled)], call.ty)


def _product(data: tuple[int, ...], outputs: int, is_stack: bool) -> Product:
    *stack, rows, inputs = data
    above = {f"a{at}": size for at, size in enumerate(stack)}
    sizes = above | {"i": rows, "j": outputs, "k": inputs}
    weights = [*above, *"kj"] if is_stack else ["k", "j"]
    return Product(sizes, [*above, *"ik"], weights, [*above, *"ij"], sizes, w_is_whole=True)
