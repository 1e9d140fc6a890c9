"""Divide a product into tiles: two tiles of rows are multiplied by two of columns at once.

The tiles of rows are consecutive, or lie in two rows of an image no wider than a tile. The
last tiles have fewer rows. Sums beyond the last row or column are unused.
"""

import re
from dataclasses import dataclass

from graphc.core.graph_rewriting import mostly_whole, whole_vectors
from graphc.quant import tile_instructions
from graphc.quant.dot_product_function import DotInstruction, Sums
from graphc.quant.tile_instructions import BYTES, COLUMNS, FACTORS, ROWS, TileInstruction

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
