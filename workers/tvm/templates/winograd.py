"""Convolutions of three by three as Winograd's F(4x4, 3x3): a quarter of the products.

The data is padded to whole tiles of six by six, which are transformed (pack), multiplied with transformed
weights (36 matrix products) and transformed to tiles of four by four (unpack). Both transforms are unrolled
a tile, channels side by side. What came before is summed and activated while it is padded.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

TILE, SPAN, KERNEL = 4, 6, 3
PRODUCTS = SPAN * SPAN
PACK = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
WEIGHTS = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
UNPACK = (
    (1, 1, 1, 1, 1, 0),
    (0, 1, -1, 2, -2, 0),
    (0, 1, 1, 4, 4, 0),
    (0, 1, -1, 8, -8, 1),
)
# What a processor computes while it moves a byte through its caches, about: the products that are saved
# must be worth the bytes that packed tiles and the larger weights cost.
OPERATIONS_A_BYTE = 10


@dataclass(frozen=True)
class Shape:
    """A convolution's sizes."""

    batch: int
    height: int
    width: int
    channels: int
    top: int
    left: int
    out_height: int
    out_width: int
    out_channels: int

    @property
    def high(self) -> int:
        return -(-self.out_height // TILE)

    @property
    def wide(self) -> int:
        return -(-self.out_width // TILE)

    @property
    def tiles(self) -> int:
        """In one image."""
        return self.high * self.wide

    @property
    def margins(self) -> tuple[int, ...]:
        """What is added before and after each dimension, so that there are whole tiles."""
        bottom = self.high * TILE + SPAN - TILE - self.height - self.top
        right = self.wide * TILE + SPAN - TILE - self.width - self.left
        return 0, 0, self.top, bottom, self.left, right, 0, 0

    @property
    def padded(self) -> tuple[int, int, int, int]:
        return self.batch, self.high * TILE + SPAN - TILE, self.wide * TILE + SPAN - TILE, self.channels

    @property
    def packed(self) -> tuple[int, int, int]:
        return PRODUCTS, self.batch * self.tiles, self.channels

    @property
    def unpacked(self) -> tuple[int, int, int, int]:
        return self.batch, self.out_height, self.out_width, self.out_channels

    def pays(self) -> bool:
        """Whether the products that are saved are worth the bytes that are moved for it."""
        tiles, pairs = self.batch * self.tiles, self.channels * self.out_channels
        direct = KERNEL**2 * self.batch * self.out_height * self.out_width
        moved = 2 * PRODUCTS * tiles * (self.channels + self.out_channels)
        moved += (PRODUCTS - KERNEL**2) * pairs
        return 2 * (direct - PRODUCTS * tiles) * pairs > OPERATIONS_A_BYTE * 4 * moved


def winograd() -> Any:
    """The pass that rewrites every convolution for which it pays."""
    return tvm.transform.module_pass(_rewrite_all, opt_level=0, name="Winograd")


def _rewrite_all(mod: Any, _: Any) -> Any:
    builder = relax.BlockBuilder(mod)

    def rewrite(call: Any, _: Any) -> Any:
        shape = _shape(call)
        return call if shape is None or not shape.pays() else _three_steps(builder, shape, call)

    convolution = is_op("relax.nn.conv2d")(wildcard(), wildcard())
    for var, graph in mod.functions.items():
        if isinstance(graph, relax.Function):
            builder.update_func(var, rewrite_call(convolution, rewrite, graph))
    return builder.get()


def _shape(call: Any) -> Shape | None:
    """The sizes of a convolution that can be rewritten, None of any other."""
    attrs, weights = call.attrs, call.args[1]
    plain = all(int(number) == 1 for number in (*attrs.strides, *attrs.dilation, attrs.groups))
    layouts = attrs.data_layout, attrs.kernel_layout, attrs.out_layout
    if not plain or layouts != ("NHWC", "HWIO", "NHWC"):
        return None
    if not isinstance(weights, tvm.ir.GenericConst):
        return None
    if call.ty.dtype != "float32" or tuple(map(int, weights.ty.shape))[:2] != (KERNEL, KERNEL):
        return None
    batch, height, width, channels = map(int, call.args[0].ty.shape)
    top, left = map(int, list(attrs.padding)[:2])
    _, out_height, out_width, out_channels = map(int, call.ty.shape)
    return Shape(batch, height, width, channels, top, left, out_height, out_width, out_channels)


def _three_steps(builder: Any, shape: Shape, call: Any) -> Any:
    data, weights = call.args
    pack = builder.add_func(_pack(shape), "winograd_pack")
    unpack = builder.add_func(_unpack(shape), "winograd_unpack")
    padded = relax.op.nn.pad(data, shape.margins)
    packed = relax.call_tir(pack, [padded], relax.TensorType(shape.packed, "float32"))
    products = relax.op.matmul(packed, relax.const(_transformed(weights.value.numpy())))
    return relax.call_tir(unpack, [products], relax.TensorType(shape.unpacked, "float32"))


def _transformed(weights: Any) -> Any:
    """The weights of the 36 products, computed once and exactly."""
    matrix = np.array(WEIGHTS)
    values = np.einsum("ea,abio,fb->efio", matrix, weights.astype("float64"), matrix)
    return values.reshape(PRODUCTS, *weights.shape[2:]).astype("float32")


def _pack(shape: Shape) -> Any:
    def read(i: int, j: int) -> str:
        row = f"p % {shape.tiles} // {shape.wide} * {TILE} + {i}"
        return f"x[p // {shape.tiles}, {row}, p % {shape.wide} * {TILE} + {j}, c]"

    def store(i: int, j: int, value: str) -> str:
        return f"y[{i * SPAN + j}, p, c] = {value}"

    return _function(PACK, shape.padded, shape.packed, shape.packed[1:], read, store)


def _unpack(shape: Shape) -> Any:
    """Stores that would fall off the end go to the last row and column, where later ones overwrite them."""

    def read(i: int, j: int) -> str:
        return f"x[{i * SPAN + j}, p, c]"

    def store(i: int, j: int, value: str) -> str:
        row = _up_to(shape.out_height, f"p % {shape.tiles} // {shape.wide} * {TILE} + {i}")
        column = _up_to(shape.out_width, f"p % {shape.wide} * {TILE} + {j}")
        return f"y[p // {shape.tiles}, {row}, {column}, c] = {value}"

    products = (*shape.packed[:2], shape.out_channels)
    return _function(UNPACK, products, shape.unpacked, products[1:], read, store)


def _up_to(size: int, index: str) -> str:
    return f"T.min({index}, {size - 1})" if size % TILE else index


def _function(
    matrix: Sequence[Sequence[float]],
    inputs: Sequence[int],
    outputs: Sequence[int],
    grid: Sequence[int],
    read: Callable[[int, int], str],
    store: Callable[[int, int, str], str],
) -> Any:
    """A tensor function that stores matrix @ tile @ matrix.T of every tile and channel."""
    size = len(matrix)
    backwards = [(i, j) for i in reversed(range(size)) for j in reversed(range(size))]
    lines = [f"t{i}_{j}: T.let = {read(i, j)}" for i in range(SPAN) for j in range(SPAN)]
    for i in range(size):
        for j in range(SPAN):
            lines.append(f"h{i}_{j}: T.let = {_sum(matrix[i], [f't{k}_{j}' for k in range(SPAN)])}")
    lines += [store(i, j, _sum(matrix[j], [f"h{i}_{k}" for k in range(SPAN)])) for i, j in backwards]
    body = "\n".join(f"            {line}" for line in lines)
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({tuple(inputs)}, "float32"), y: T.Buffer({tuple(outputs)}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for a, b in T.grid({grid[0]}, {grid[1]}):
        with T.sblock("tile"):
            p, c = T.axis.remap("SS", [a, b])
            T.reads(x[{_all_of(inputs)}, c])
            T.writes(y[{_all_of(outputs)}, c])
{body}
""")


def _all_of(sizes: Sequence[int]) -> str:
    """Every dimension but the channels, from end to end."""
    return ", ".join(f"0:{size}" for size in sizes[:-1])


def _sum(row: Sequence[float], values: Sequence[str]) -> str:
    terms = [
        value if factor == 1 else f"T.float32({float(factor)!r}) * {value}"
        for factor, value in zip(row, values, strict=True)
        if factor
    ]
    return " + ".join(terms)
