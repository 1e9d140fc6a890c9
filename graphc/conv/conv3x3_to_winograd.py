"""Compute 3x3 convolutions by Winograd's algorithm, in output tiles of 4x4 or 2x2 pixels.

The data is padded to whole tiles. One function (pack) transforms input tiles of 6x6 or 4x4
pixels, 36 or 16 matrix products multiply by transformed weights, and a second function
(unpack) transforms the products to output tiles. In pack and unpack the transform of a tile
is unrolled, with channels innermost. TVM fuses a preceding bias and activation with the
padding. Only 2x2 tiles may use bfloat16, since 4x4 tiles amplify rounding errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import is_channels_last, parse_tvmscript, sizes_of

KERNEL = 3
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Form:
    """Winograd's F(tile x tile, 3x3): its matrices to transform data, weights and result."""

    pack: Matrix
    weights: Matrix
    unpack: Matrix
    rounds: bool  # whether the factors of its products may be bfloat16

    @property
    def tile(self) -> int:
        return len(self.unpack)

    @property
    def input_tile_size(self) -> int:
        return len(self.pack)

    @property
    def products_per_tile(self) -> int:
        return self.input_tile_size**2


SMALL = Form(
    pack=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    weights=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    unpack=((1, 1, 1, 0), (0, 1, -1, -1)),
    rounds=True,
)
LARGE = Form(
    pack=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    weights=(
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    unpack=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    rounds=False,
)
FORMS = (SMALL, LARGE)
# Arithmetic operations in the time of moving one byte through a processor's caches, and
# from memory. Winograd must save more than packed tiles and larger weights cost.
OPERATIONS_A_BYTE = 5
OPERATIONS_A_FAR_BYTE = 11.5
BYTES = {"float32": 4, "bfloat16": 2}
SPEED = {"float32": 1, "bfloat16": 2}  # products per unit of time, relative to float32
PAIR, LANES = 2, 16  # input and output channels per bfloat16 instruction


@dataclass(frozen=True)
class Shape:
    """Sizes of a convolution, and the data type to which its operands may be rounded."""

    batch: int
    height: int
    width: int
    channels: int
    top: int
    left: int
    out_height: int
    out_width: int
    out_channels: int
    dtype: str = "float32"


@dataclass(frozen=True)
class WinogradPlan:
    """A convolution, and the tile size and matrices to compute it by Winograd's method."""

    shape: Shape
    form: Form

    @property
    def dtype(self) -> str:
        """The data type of the operands of the matrix products."""
        return self.shape.dtype if self.form.rounds else "float32"

    @property
    def tile_rows(self) -> int:
        return -(-self.shape.out_height // self.form.tile)

    @property
    def tile_columns(self) -> int:
        return -(-self.shape.out_width // self.form.tile)

    @property
    def tiles(self) -> int:
        """The number of output tiles per image."""
        return self.tile_rows * self.tile_columns

    @property
    def padded(self) -> tuple[int, int, int, int]:
        """The shape of the data after padding to whole tiles."""
        rim = self.form.input_tile_size - self.form.tile
        high, wide = (count * self.form.tile + rim for count in (self.tile_rows, self.tile_columns))
        return self.shape.batch, high, wide, self.shape.channels

    @property
    def margins(self) -> tuple[int, ...]:
        """Zeros to add before and after each dimension, as `nn.pad` takes them."""
        shape, (_, high, wide, _) = self.shape, self.padded
        rows = shape.top, high - shape.height - shape.top
        return 0, 0, *rows, shape.left, wide - shape.width - shape.left, 0, 0

    @property
    def packed(self) -> tuple[int, int, int]:
        return self.form.products_per_tile, self.shape.batch * self.tiles, self.shape.channels

    @property
    def net_operations_saved(self) -> float:
        """Arithmetic operations saved, minus those that the extra memory traffic costs."""
        shape, products, size = self.shape, self.form.products_per_tile, BYTES[self.dtype]
        tiles, pairs = shape.batch * self.tiles, shape.channels * shape.out_channels
        direct = KERNEL**2 * shape.batch * shape.out_height * shape.out_width / SPEED[shape.dtype]
        bytes_moved = 2 * products * tiles * (shape.channels * size + shape.out_channels * 4)
        fetched = (products * size - KERNEL**2 * BYTES[shape.dtype]) * pairs
        saved_operations = 2 * (direct - products * tiles / SPEED[self.dtype]) * pairs
        return saved_operations - OPERATIONS_A_BYTE * bytes_moved - OPERATIONS_A_FAR_BYTE * fetched


def choose_winograd_plan(shape: Shape) -> WinogradPlan | None:
    """Return the plan with the largest gain, or None if direct convolution is cheaper."""
    plan = max((WinogradPlan(shape, form) for form in FORMS), key=lambda plan: plan.net_operations_saved)
    return plan if plan.net_operations_saved > 0 else None


class Conv3x3ToWinograd(Pass[WinogradPlan]):
    """Computes 3 x 3 convolutions by Winograd's algorithm where that should be faster."""

    name, match = "conv3x3_to_winograd", ("relax.nn.conv2d",)

    def __init__(self, precision: str = "float32") -> None:
        super().__init__()
        self.precision = precision  # the lowest precision of the factors

    def check(self, call: Any, g: Graph) -> WinogradPlan:
        attrs = call.attrs
        if any(int(number) != 1 for number in (*attrs.strides, *attrs.dilation, attrs.groups)):
            raise Leave("the convolution has strides, dilation or groups")
        if not is_channels_last(call):
            raise Leave("the channels are not last, or the weights are computed")
        if sizes_of(call.args[1])[:2] != (KERNEL, KERNEL):
            raise Leave("the kernel of the convolution is not 3 x 3")
        batch, height, width, channels = sizes_of(call.args[0])
        top, left = map(int, list(attrs.padding)[:2])
        _, out_height, out_width, out_channels = sizes_of(call)
        has_pairs = channels % PAIR == 0 and out_channels % LANES == 0
        dtype = self.precision if has_pairs else "float32"
        plan = choose_winograd_plan(
            Shape(batch, height, width, channels, top, left, out_height, out_width, out_channels, dtype)
        )
        if plan is None:
            raise Leave("copying the tiles would take longer than it saves")
        return plan

    def rewrite(self, call: Any, facts: WinogradPlan, g: Graph) -> Any:
        data, weights = call.args[0], g.array(call.args[1])
        padded_data = relax.op.nn.pad(data, facts.margins) if any(facts.margins) else data
        packed_type = relax.TensorType(facts.packed, facts.dtype)
        tiles = g.call_function("winograd_pack", _build_pack_function(facts), [padded_data], packed_type)
        # Transform the weights at compile time, in float64.
        matrix = np.array(facts.form.weights)
        transformed = np.einsum("ea,abio,fb->efio", matrix, weights.astype("float64"), matrix)
        transformed = transformed.reshape(facts.form.products_per_tile, *weights.shape[2:]).astype("float32")
        products = relax.op.matmul(tiles, relax.const(transformed, facts.dtype), out_dtype="float32")
        return g.call_function("winograd_unpack", _build_unpack_function(facts), [products], call.ty)


@lru_cache
def _build_pack_function(plan: WinogradPlan) -> Any:
    tile, span = plan.form.tile, plan.form.input_tile_size

    def read(i: int, j: int) -> str:
        row = f"p % {plan.tiles} // {plan.tile_columns} * {tile} + {i}"
        return f"x[p // {plan.tiles}, {row}, p % {plan.tile_columns} * {tile} + {j}, c]"

    def store(i: int, j: int, value: str) -> str:
        cast = value if plan.dtype == "float32" else f'T.Cast("{plan.dtype}", {value})'
        return f"y[{i * span + j}, p, c] = {cast}"

    return _function(plan.form.pack, plan.padded, plan.packed, plan.packed[1:], read, store, plan.dtype)


@lru_cache
def _build_unpack_function(plan: WinogradPlan) -> Any:
    """Build the function that transforms matrix products to output tiles.

    Pixels of a tile beyond the image are stored to its last row or column, then overwritten.
    """
    shape, tile, span = plan.shape, plan.form.tile, plan.form.input_tile_size

    def read(i: int, j: int) -> str:
        return f"x[{i * span + j}, p, c]"

    def up_to(size: int, index: str) -> str:
        return f"T.min({index}, {size - 1})" if size % tile else index

    def store(i: int, j: int, value: str) -> str:
        row = up_to(shape.out_height, f"p % {plan.tiles} // {plan.tile_columns} * {tile} + {i}")
        column = up_to(shape.out_width, f"p % {plan.tile_columns} * {tile} + {j}")
        return f"y[p // {plan.tiles}, {row}, {column}, c] = {value}"

    products = (*plan.packed[:2], shape.out_channels)
    result = shape.batch, shape.out_height, shape.out_width, shape.out_channels
    return _function(plan.form.unpack, products, result, products[1:], read, store)


def _function(
    matrix: Sequence[Sequence[float]],
    inputs: Sequence[int],
    outputs: Sequence[int],
    grid: Sequence[int],
    read: Callable[[int, int], str],
    store: Callable[[int, int, str], str],
    dtype: str = "float32",
) -> Any:
    """Build a function that stores matrix @ tile @ matrix.T for every tile and channel."""
    size, span = len(matrix), len(matrix[0])
    backwards = [(i, j) for i in reversed(range(size)) for j in reversed(range(size))]
    lines = [f"t{i}_{j}: T.let = {read(i, j)}" for i in range(span) for j in range(span)]
    for i in range(size):
        for j in range(span):
            lines.append(f"h{i}_{j}: T.let = {_sum(matrix[i], [f't{k}_{j}' for k in range(span)])}")
    lines += [store(i, j, _sum(matrix[j], [f"h{i}_{k}" for k in range(span)])) for i, j in backwards]
    body = "\n".join(f"            {line}" for line in lines)
    # The full range of every dimension except the channels.
    all_inputs, all_outputs = (", ".join(f"0:{size}" for size in sizes[:-1]) for sizes in (inputs, outputs))
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({tuple(inputs)}, "float32"), y: T.Buffer({tuple(outputs)}, "{dtype}")) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for a, b in T.grid({grid[0]}, {grid[1]}):
        with T.sblock("tile"):
            p, c = T.axis.remap("SS", [a, b])
            T.reads(x[{all_inputs}, c])
            T.writes(y[{all_outputs}, c])
{body}
""")


def _sum(row: Sequence[float], values: Sequence[str]) -> str:
    terms = [
        value if factor == 1 else f"T.float32({float(factor)!r}) * {value}"
        for factor, value in zip(row, values, strict=True)
        if factor
    ]
    return " + ".join(terms)
