"""Build products with constant weights by tile instructions, as tensor functions.

Two tiles of rows are multiplied by two of columns at once. The tiles of rows follow each
other, or lie in two rows of an image no wider than a tile. The last tiles may have fewer
rows. Results beyond the last row or column are not used.

The weights have the same layout as for vector instructions. A process that may not use
tiles computes the same in loops.
"""

import re
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.quant import dot_product_function, tile_instructions
from mallorn.graphc.quant.dot_product_function import DotInstruction, Sums
from mallorn.graphc.quant.tile_instruction import (
    ALLOWED,
    BYTES,
    COLUMNS,
    FACTORS,
    ROWS,
    RULE,
    TileInstruction,
)

WIDTH = FACTORS * COLUMNS  # columns at once
LEAST_BYTES = 32  # fewest bytes of a data row in a tile
LEAST_ROWS = 8  # fewest rows of a block: with fewer, reading weights dominates


@dataclass(frozen=True)
class TiledSums:
    """A product that a tile instruction computes, and its division into blocks of tiles."""

    instruction: TileInstruction
    sums: Sums

    @property
    def rows(self) -> int:
        """Rows of the result along the axis that is divided into tiles."""
        return self.sums.result[-2]

    @property
    def spans_two_image_rows(self) -> bool:
        """True if the two tiles of rows lie in two rows of the image."""
        return self.rows <= ROWS and len(self.sums.result) > 3 and self.sums.result[-3] > 1

    @property
    def row_block_count(self) -> int:
        return 1 if self.spans_two_image_rows else -(-self.rows // (FACTORS * ROWS))

    @property
    def first_tile_rows(self) -> int:
        return self.rows if self.spans_two_image_rows else -(-self.rows_per_block // FACTORS)

    @property
    def rows_per_block(self) -> int:
        """Rows per block, nearly equal in all blocks."""
        return self.rows if self.spans_two_image_rows else max(FACTORS, -(-self.rows // self.row_block_count))

    @property
    def run_length(self) -> int:
        """Number of data elements that are read contiguously."""
        across = 1 if self.sums.stacked or not self.sums.kernel else self.sums.kernel[-1]
        return across * self.sums.inputs

    @property
    def runs_per_window(self) -> int:
        """Number of places in the window where a contiguous run begins."""
        return 1 if self.sums.stacked or not self.sums.kernel else self.sums.kernel[0]

    @property
    def elements_per_multiply(self) -> int:
        """Elements of a run multiplied at once; 0 if they fill less than half a row."""
        size, terms = self.instruction.element_bytes, self.instruction.numbers.terms
        fits = [count for count in range(terms, BYTES // size + 1, terms) if self.run_length % count == 0]
        numbers = max(fits, default=0)
        return numbers if numbers * size >= LEAST_BYTES else 0

    @property
    def computed_shape(self) -> tuple[int, ...]:
        """Shape of the computed result, including unused rows and columns."""
        *outer, rows, columns = self.sums.result
        if self.spans_two_image_rows:
            outer[-1] = graph_rewriting.round_up_to_vectors(outer[-1], FACTORS)
        padded_rows = rows if self.spans_two_image_rows else self.row_block_count * self.rows_per_block
        return *outer, padded_rows, graph_rewriting.round_up_to_vectors(columns, WIDTH)

    @property
    def outer_loop_extents(self) -> tuple[int, ...]:
        """Extents of the loops over outer axes, blocks of rows and blocks of columns."""
        *outer, _, columns = self.computed_shape
        if self.spans_two_image_rows:
            outer[-1] //= FACTORS
        return *outer, self.row_block_count, columns // WIDTH

    def format_row_index(self, tile: str, row: str) -> dict[str, str]:
        """Return the index of a tile's row in the result, clamped so that its data exists."""
        axis = len(self.sums.result) - 2
        if self.spans_two_image_rows:
            pair = f"T.min(vi{axis - 1} * {FACTORS} + {tile}, {self.sums.result[-3] - 1})"
            return {f"vi{axis - 1}": pair, f"vi{axis}": row}
        row_index = f"vi{axis} * {self.rows_per_block} + {tile} * {self.first_tile_rows} + {row}"
        return {f"vi{axis}": f"T.min({row_index}, {self.rows - 1})"}

    def data(self, **indices: str) -> str:
        """Return TVMScript indices of the data; `indices` replaces loop variables."""
        return re.sub(r"\bv\w+", lambda match: indices.get(match[0], match[0]), ", ".join(self.sums.read))


def divide_into_tiles(sums: Sums, dot: DotInstruction) -> TiledSums | None:
    """Divide a product into tiles; None without tiles, or if they would be too empty."""
    instruction = tile_instructions.best_instruction(dot.data)
    if instruction is None or sums.strides is None or sums.inputs % instruction.numbers.terms:
        return None
    index = instruction.numbers.input_index
    read = tuple(part.replace(dot.input_index, index) for part in sums.read)
    tiling = TiledSums(instruction, replace(sums, read=read))
    rows = tiling.rows_per_block * (FACTORS if tiling.spans_two_image_rows else 1)
    columns = graph_rewriting.is_worth_padding(sums.result[-1], WIDTH)
    return tiling if tiling.elements_per_multiply and rows >= LEAST_ROWS and columns else None


def pack_weights(tiled: TiledSums, weights: Any) -> Any:
    """Pack [..., inputs, outputs] for tiles, padded to an even number of tile columns."""
    padding = tiled.computed_shape[-1] - weights.shape[-1]
    padded_weights = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, padding)])
    return dot_product_function.pack_weights(tiled.instruction.numbers, padded_weights)


def build_function(tiled: TiledSums, name: str) -> Any:
    """Build the tensor function; TVM can fuse element-wise operators after it."""
    sums, dot = tiled.sums, tiled.instruction.numbers
    axes = [f"i{axis}" for axis in range(len(sums.result) - 1)] + ["j"]
    values = [f"v{axis}" for axis in axes]
    is_full = tiled.computed_shape == sums.result
    data, result, all_sums = map(graph_rewriting.numbers, (sums.data, sums.result, tiled.computed_shape))
    beside_vectors = (*sums.kernel, sums.inputs // dot.terms, dot.lanes, dot.terms)
    weights = graph_rewriting.numbers((tiled.computed_shape[-1] // dot.lanes, *beside_vectors))
    target, shape = "y" if is_full else "z", _block_shape(tiled)
    row_axis = len(tiled.sums.result) - 2
    row_axes = [f"vi{axis}" for axis in range(row_axis)]
    if tiled.spans_two_image_rows:
        place = _joined(*row_axes[:-1], _part(row_axes[-1], FACTORS), f"0 : {tiled.rows}")
    else:
        place = _joined(*row_axes, _part(f"vi{row_axis}", tiled.rows_per_block))
    region = f"{target}[{place}, {_part('vj', WIDTH)}]"
    strides = [f"s{axis}" for axis in range(len(shape) - 1)]
    declared = "".join(f"            {stride} = T.int64()\n" for stride in strides)
    block_sizes = graph_rewriting.numbers(shape)
    return graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({data}), "{dot.data}"),
    w: T.Buffer(({weights}), "{dot.weights}"),
    y: T.Buffer(({result}), "{dot.sums}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    {"" if is_full else f'z = T.sblock_alloc_buffer(({all_sums}), "{dot.sums}")'}
    for {", ".join(axes)} in T.grid({graph_rewriting.numbers(tiled.outer_loop_extents)}):
        with T.sblock("tiles"):
            {", ".join(values)} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            T.reads(x[{_all(sums.data)}], w[{_part("vj", FACTORS)}, {_all(beside_vectors)}])
            T.writes({region})
            T.sblock_attr({{
                "{graph_rewriting.RULE}": "{RULE}",
                "{graph_rewriting.OPERATOR}": "{name}",
                "{graph_rewriting.TERMS}": {tiled.runs_per_window * tiled.run_length},
                "{graph_rewriting.WORK}": {2 * prod(sums.result) * tiled.runs_per_window * tiled.run_length},
            }})

{declared}
            t = T.match_buffer({region}, ({block_sizes}), "{dot.sums}",
                strides=[{", ".join(strides)}, 1], offset_factor=1)
            T.attr(0, "pragma_import_llvm", {tiled.instruction.text!r})
            if T.call_extern("int32", "{ALLOWED}") != 0:
                T.evaluate(T.call_extern("void", "{tiled.instruction.function}", {_arguments(tiled)}))
            else:
{_format_fallback_loops(tiled)}

{"" if is_full else graph_rewriting.format_result_copy(sums.result)}""")


def _block_shape(tiled: TiledSums) -> tuple[int, ...]:
    return (FACTORS, tiled.rows, WIDTH) if tiled.spans_two_image_rows else (tiled.rows_per_block, WIDTH)


def _arguments(tiled: TiledSums) -> str:
    sums = tiled.sums
    first_terms = {f"v{axis}": "0" for axis in (*sums.window_axes, "ko", "ki")}
    row, place = (stride * tiled.instruction.element_bytes for stride in sums.strides or ())
    place_of = ", ".join(["vi0"] if sums.stacked else ["0"] * len(sums.kernel))
    weights = (f"w[{_joined(f'vj * {FACTORS} + {tile}', place_of, '0, 0, 0')}]" for tile in (0, 1))
    data = (f"x[{tiled.data(**first_terms, **tiled.format_row_index(tile, '0'))}]" for tile in "01")
    results = (
        ("t[0, 0, 0]", "t[1, 0, 0]")
        if tiled.spans_two_image_rows
        else ("t[0, 0]", f"t[{tiled.first_tile_rows}, 0]")
    )
    at_once = tiled.elements_per_multiply
    steps, wide = tiled.run_length // at_once, at_once * tiled.instruction.element_bytes
    sizes = [f"T.int64({number})" for number in (row, place, tiled.runs_per_window, steps, wide)]
    x, w, t = (
        ", ".join(f"T.address_of({element})" for element in elements) for elements in (data, weights, results)
    )
    # Rows of each tile; the last tiles have fewer, at least one, even if unused.
    rows = [f"T.int32({tiled.rows})"] * 2
    if not tiled.spans_two_image_rows:
        left = f"{tiled.rows} - vi{len(sums.result) - 2} * {tiled.rows_per_block}"
        first_count = tiled.first_tile_rows
        second = f"T.max(1, T.min({tiled.rows_per_block - first_count}, {left} - {first_count}))"
        rows = [f'T.Cast("int32", {count})' for count in (f"T.min({first_count}, {left})", second)]
    return _joined(x, *sizes, w, t, f"s{len(_block_shape(tiled)) - 2} * T.int64(4)", *rows)


def _format_fallback_loops(tiled: TiledSums) -> str:
    """Return the same computation in loops, for a process without tiles."""
    sums, dot = tiled.sums, tiled.instruction.numbers
    rows = ["p", "r"] if tiled.spans_two_image_rows else ["r"]
    place = ", ".join([*rows, "c"])
    window = [*sums.window_axes, "ko", "ki"]
    indices = {f"v{axis}": axis for axis in window} | tiled.format_row_index(
        "p" if tiled.spans_two_image_rows else "0", "r"
    )
    place_of_weights = ", ".join(["vi0"] if sums.stacked else sums.window_axes)
    w = _joined(f"vj * {FACTORS} + c // {COLUMNS}", place_of_weights, f"ko, c % {COLUMNS}, ki")
    extents = (*(() if sums.stacked else sums.kernel), sums.inputs // dot.terms, dot.terms)
    return f"""
                for {place} in T.grid({graph_rewriting.numbers(_block_shape(tiled))}):
                    t[{place}] = T.{dot.sums}(0)
                    for {", ".join(window)} in T.grid({graph_rewriting.numbers(extents)}):
                        t[{place}] = t[{place}] + (
                            T.Cast("{dot.sums}", x[{tiled.data(**indices)}]) * T.Cast("{dot.sums}", w[{w}])
                        )"""


def _part(axis: str, size: int) -> str:
    return f"{axis} * {size} : {axis} * {size} + {size}"


def _all(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"0 : {size}" for size in sizes)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
