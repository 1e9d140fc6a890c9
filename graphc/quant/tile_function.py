"""Build products with constant weights by AMX tiles, as tensor functions.

Two tiles of rows are multiplied by two of columns at once. The tiles of rows are consecutive,
or lie in two rows of an image no wider than a tile. The last tiles have fewer rows. Sums
beyond the last row or column are unused.

The weights have the same layout as for vector instructions. A process that may not use tiles
computes the same in loops.
"""

import re
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from graphc.core import graph_rewriting
from graphc.core.graph_pass import Graph
from graphc.core.graph_rewriting import mostly_whole, whole_vectors
from graphc.quant import dot_product_function, tile_instructions
from graphc.quant.dot_product_function import DotInstruction, Sums
from graphc.quant.tile_instructions import ALLOWED, BYTES, COLUMNS, FACTORS, ROWS, RULE, TileInstruction

WIDTH = FACTORS * COLUMNS  # columns at once
LEAST_BYTES = 32  # fewest bytes of a data row in a tile
LEAST_ROWS = 8  # fewest rows of a block: with fewer, reading weights dominates


@dataclass(frozen=True)
class TiledSums:
    """Sums that a tile instruction computes, and how they are divided into blocks."""

    by: TileInstruction
    sums: Sums

    @property
    def rows(self) -> int:
        """Rows along the axis that is divided into tiles."""
        return self.sums.result[-2]

    @property
    def paired(self) -> bool:
        """True if the second tile lies in another row of the image."""
        return self.rows <= ROWS and len(self.sums.result) > 3 and self.sums.result[-3] > 1

    @property
    def blocks(self) -> int:
        """Number of blocks along the axis of rows."""
        return 1 if self.paired else -(-self.rows // (FACTORS * ROWS))

    @property
    def above(self) -> int:
        """Rows of the first tile."""
        return self.rows if self.paired else -(-self.block // FACTORS)

    @property
    def block(self) -> int:
        """Rows per block, nearly equal in all blocks."""
        return self.rows if self.paired else max(FACTORS, -(-self.rows // self.blocks))

    @property
    def run(self) -> int:
        """Numbers that are read contiguously."""
        across = 1 if self.sums.stacked or not self.sums.kernel else self.sums.kernel[-1]
        return across * self.sums.inputs

    @property
    def places(self) -> int:
        """Number of places in the window where a contiguous run begins."""
        return 1 if self.sums.stacked or not self.sums.kernel else self.sums.kernel[0]

    @property
    def step(self) -> int:
        """Numbers of a run that are multiplied at once; 0 if they would be too few."""
        size, each = self.size, self.by.numbers.each
        fits = [count for count in range(each, BYTES // size + 1, each) if self.run % count == 0]
        most = max(fits, default=0)
        return most if most * size >= LEAST_BYTES else 0

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return BYTES // COLUMNS // self.by.numbers.each

    @property
    def summed(self) -> tuple[int, ...]:
        """Sizes of what is computed, including unused rows and columns."""
        *others, rows, columns = self.sums.result
        if self.paired:
            others[-1] = whole_vectors(others[-1], FACTORS)
        padded_rows = rows if self.paired else self.blocks * self.block
        return *others, padded_rows, whole_vectors(columns, WIDTH)

    @property
    def loops(self) -> tuple[int, ...]:
        """Extents of the outer axes, blocks of rows, and blocks of columns."""
        *others, _, columns = self.summed
        if self.paired:
            others[-1] //= FACTORS
        return *others, self.blocks, columns // WIDTH

    def row(self, tile: str, row: str) -> dict[str, str]:
        """Return the index of a tile's row in the result, clamped so that its data exists."""
        at = len(self.sums.result) - 2
        if self.paired:
            pair = f"T.min(vi{at - 1} * {FACTORS} + {tile}, {self.sums.result[-3] - 1})"
            return {f"vi{at - 1}": pair, f"vi{at}": row}
        below = f"vi{at} * {self.block} + {tile} * {self.above} + {row}"
        return {f"vi{at}": f"T.min({below}, {self.rows - 1})"}

    def data(self, **known: str) -> str:
        """Return the indices of the data that is read, with `known` loop variables replaced."""
        return re.sub(r"\bv\w+", lambda found: known.get(found[0], found[0]), ", ".join(self.sums.read))


def tiled(sums: Sums, by: DotInstruction) -> TiledSums | None:
    """Return the sums as tiles, or None if the target lacks them or they are too empty."""
    instruction = tile_instructions.BY_TYPE.get(by.data)
    if instruction is None or sums.strides is None or not tile_instructions.has_tiles(instruction):
        return None
    tiling = TiledSums(instruction, sums)
    rows = tiling.block * (FACTORS if tiling.paired else 1)
    columns = mostly_whole(sums.result[-1], WIDTH)
    return tiling if tiling.step and rows >= LEAST_ROWS and columns else None


def packed(tiled: TiledSums, weights: Any) -> Any:
    """Pack [..., inputs, outputs] for tiles, padded to an even number of tile columns."""
    missing = tiled.summed[-1] - weights.shape[-1]
    padded = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, missing)])
    return dot_product_function.packed(tiled.by.numbers, padded)


def call(tiled: TiledSums, weights: Any, name: str, data: Any, g: Graph) -> Any:
    """Return the call of the product's function with packed weights."""
    laid = relax.const(packed(tiled, weights))
    result = relax.TensorType(tiled.sums.result, tiled.by.numbers.sums)
    return g.call_function(name, function(tiled, name.partition("_")[2]), [data, laid], result)


def function(tiled: TiledSums, name: str) -> Any:
    """Build the tensor function; TVM can fuse element-wise operators after it."""
    sums, by = tiled.sums, tiled.by.numbers
    axes = [f"i{axis}" for axis in range(len(sums.result) - 1)] + ["j"]
    values = [f"v{axis}" for axis in axes]
    is_full = tiled.summed == sums.result
    data, result, every = map(graph_rewriting.numbers, (sums.data, sums.result, tiled.summed))
    steps = (tiled.summed[-1] // by.lanes, *sums.kernel, sums.inputs // by.each, by.lanes, by.each)
    weights = graph_rewriting.numbers(steps)
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({data}), "{by.data}"),
    w: T.Buffer(({weights}), "{by.weights}"),
    y: T.Buffer(({result}), "{by.sums}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    {"" if is_full else f'z = T.sblock_alloc_buffer(({every}), "{by.sums}")'}
    for {", ".join(axes)} in T.grid({graph_rewriting.numbers(tiled.loops)}):
        with T.sblock("tiles"):
            {", ".join(values)} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            T.reads(x[{_all(sums.data)}], w[{_part("vj", FACTORS)}, {_all(steps[1:])}])
            T.writes({_written("y" if is_full else "z", tiled)})
            T.sblock_attr({{
                "{graph_rewriting.RULE}": "{RULE}",
                "{graph_rewriting.OPERATOR}": "{name}",
                "{graph_rewriting.TERMS}": {tiled.places * tiled.run},
                "{graph_rewriting.WORK}": {2 * prod(sums.result) * tiled.places * tiled.run},
            }})
{_body(tiled, "y" if is_full else "z")}
{"" if is_full else dot_product_function.taken(sums.result)}""")


def _body(tiled: TiledSums, result: str) -> str:
    by, shape = tiled.by.numbers, _block(tiled)
    strides = [f"s{axis}" for axis in range(len(shape) - 1)]
    declared = "".join(f"            {stride} = T.int64()\n" for stride in strides)
    return f"""
{declared}
            t = T.match_buffer({_written(result, tiled)}, ({graph_rewriting.numbers(shape)}), "{by.sums}",
                strides=[{", ".join(strides)}, 1], offset_factor=1)
            T.attr(0, "pragma_import_llvm", {tiled.by.text!r})
            if T.call_extern("int32", "{ALLOWED}") != 0:
                T.evaluate(T.call_extern("void", "{tiled.by.function}", {_arguments(tiled)}))
            else:
{_loops(tiled)}
"""


def _block(tiled: TiledSums) -> tuple[int, ...]:
    """Return the shape of the block of results that is computed at once."""
    return (FACTORS, tiled.rows, WIDTH) if tiled.paired else (tiled.block, WIDTH)


def _arguments(tiled: TiledSums) -> str:
    """Return the arguments of the LLVM function; sizes are in bytes."""
    sums = tiled.sums
    nothing = {f"v{axis}": "0" for axis in (*sums.window, "ko", "ki")}
    row, place = (stride * tiled.size for stride in sums.strides or ())
    place_of = ", ".join(["vi0"] if sums.stacked else ["0"] * len(sums.kernel))
    weights = (f"w[{_joined(f'vj * {FACTORS} + {tile}', place_of, '0, 0, 0')}]" for tile in (0, 1))
    data = (f"x[{tiled.data(**nothing, **tiled.row(tile, '0'))}]" for tile in "01")
    results = ("t[0, 0, 0]", "t[1, 0, 0]") if tiled.paired else ("t[0, 0]", f"t[{tiled.above}, 0]")
    numbers = (row, place, tiled.places, tiled.run // tiled.step, tiled.step * tiled.size)
    sizes = [f"T.int64({number})" for number in numbers]
    x, w, t = (", ".join(f"T.address_of({each})" for each in places) for places in (data, weights, results))
    return _joined(x, *sizes, w, t, f"s{len(_block(tiled)) - 2} * T.int64(4)", *_rows(tiled))


def _rows(tiled: TiledSums) -> list[str]:
    """Return the rows of each tile; the last tiles have fewer, at least one, even if unused."""
    at = len(tiled.sums.result) - 2
    left = f"{tiled.rows} - vi{at} * {tiled.block}"
    below = f"T.max(1, T.min({tiled.block - tiled.above}, {left} - {tiled.above}))"
    if tiled.paired:
        return [f"T.int32({tiled.rows})"] * 2
    return [f'T.Cast("int32", {rows})' for rows in (f"T.min({tiled.above}, {left})", below)]


def _loops(tiled: TiledSums) -> str:
    """Return the same computation in loops, for a process without tiles."""
    sums, by = tiled.sums, tiled.by.numbers
    rows = ["p", "r"] if tiled.paired else ["r"]
    place = ", ".join([*rows, "c"])
    window = [*sums.window, "ko", "ki"]
    indices = {f"v{axis}": axis for axis in window} | tiled.row(*(["p", "r"] if tiled.paired else ["0", "r"]))
    at = ", ".join(["vi0"] if sums.stacked else sums.window)
    w = _joined(f"vj * {FACTORS} + c // {COLUMNS}", at, f"ko, c % {COLUMNS}, ki")
    extents = (*(() if sums.stacked else sums.kernel), sums.inputs // by.each, by.each)
    return f"""
                for {place} in T.grid({graph_rewriting.numbers(_block(tiled))}):
                    t[{place}] = T.{by.sums}(0)
                    for {", ".join(window)} in T.grid({graph_rewriting.numbers(extents)}):
                        t[{place}] = t[{place}] + (
                            T.Cast("{by.sums}", x[{tiled.data(**indices)}]) * T.Cast("{by.sums}", w[{w}])
                        )"""


def _written(result: str, tiled: TiledSums) -> str:
    at = len(tiled.sums.result) - 2
    axes = [f"vi{axis}" for axis in range(at)]
    if tiled.paired:
        place = _joined(*axes[:-1], _part(axes[-1], FACTORS), f"0 : {tiled.rows}")
    else:
        place = _joined(*axes, _part(f"vi{at}", tiled.block))
    return f"{result}[{place}, {_part('vj', WIDTH)}]"


def _part(axis: str, size: int) -> str:
    return f"{axis} * {size} : {axis} * {size} + {size}"


def _all(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"0 : {size}" for size in sizes)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
