"""How tiles lie in a product: two of rows are multiplied with two of columns at once.

Tiles of rows lie behind each other in a row of the result, or in two rows of a picture that is no wider than
one. The last ones have fewer rows. Sums behind the result's last row or column are of nothing.
"""

import re
from dataclasses import dataclass

from graphc.core.graph_rewriting import mostly_whole, whole_vectors
from graphc.quant import tile_instructions
from graphc.quant.dot_product_function import DotInstruction, Sums
from graphc.quant.tile_instructions import BYTES, COLUMNS, FACTORS, ROWS, TileInstruction

WIDTH = FACTORS * COLUMNS  # columns at once
LEAST_BYTES = 32  # of a row of data in a tile
LEAST_ROWS = 8  # of a block: below, reading weights takes longer than multiplying


@dataclass(frozen=True)
class TiledSums:
    """Sums that an instruction computes, and of how many blocks."""

    by: TileInstruction
    sums: Sums

    @property
    def rows(self) -> int:
        """Along the axis that tiles lie on."""
        return self.sums.result[-2]

    @property
    def paired(self) -> bool:
        """Whether the second tile lies in another row of the picture."""
        return self.rows <= ROWS and len(self.sums.result) > 3 and self.sums.result[-3] > 1

    @property
    def blocks(self) -> int:
        """Of rows, along their axis."""
        return 1 if self.paired else -(-self.rows // (FACTORS * ROWS))

    @property
    def above(self) -> int:
        """Rows of the first tile."""
        return self.rows if self.paired else -(-self.block // FACTORS)

    @property
    def block(self) -> int:
        """Rows of a block, along their axis: as many in each, nearly."""
        return self.rows if self.paired else max(FACTORS, -(-self.rows // self.blocks))

    @property
    def run(self) -> int:
        """Numbers that are read side by side."""
        across = 1 if self.sums.stacked or not self.sums.kernel else self.sums.kernel[-1]
        return across * self.sums.inputs

    @property
    def places(self) -> int:
        """Of the window, where such runs begin."""
        return 1 if self.sums.stacked or not self.sums.kernel else self.sums.kernel[0]

    @property
    def step(self) -> int:
        """Numbers of a run that are multiplied at once; 0 where they would be few."""
        size, each = self.size, self.by.numbers.each
        fits = [many for many in range(each, BYTES // size + 1, each) if self.run % many == 0]
        most = max(fits, default=0)
        return most if most * size >= LEAST_BYTES else 0

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return BYTES // COLUMNS // self.by.numbers.each

    @property
    def summed(self) -> tuple[int, ...]:
        """The sizes of what is computed, with rows and columns of nothing."""
        *others, rows, columns = self.sums.result
        if self.paired:
            others[-1] = whole_vectors(others[-1], FACTORS)
        whole = rows if self.paired else self.blocks * self.block
        return *others, whole, whole_vectors(columns, WIDTH)

    @property
    def loops(self) -> tuple[int, ...]:
        """Over all others, blocks of rows, and blocks of columns."""
        *others, _, columns = self.summed
        if self.paired:
            others[-1] //= FACTORS
        return *others, self.blocks, columns // WIDTH

    def row(self, tile: str, row: str) -> dict[str, str]:
        """Where a row of a tile lies in the result: never behind its end, so that data is there."""
        at = len(self.sums.result) - 2
        if self.paired:
            pair = f"T.min(vi{at - 1} * {FACTORS} + {tile}, {self.sums.result[-3] - 1})"
            return {f"vi{at - 1}": pair, f"vi{at}": row}
        below = f"vi{at} * {self.block} + {tile} * {self.above} + {row}"
        return {f"vi{at}": f"T.min({below}, {self.rows - 1})"}

    def data(self, **known: str) -> str:
        """What of the data is read, in terms of loops."""
        return re.sub(r"\bv\w+", lambda found: known.get(found[0], found[0]), ", ".join(self.sums.read))


def tiled(sums: Sums, by: DotInstruction) -> TiledSums | None:
    """The same sums by tiles, where the target has them and they fill them."""
    instruction = tile_instructions.BY_TYPE.get(by.data)
    if instruction is None or sums.strides is None or not tile_instructions.has_tiles(instruction):
        return None
    found = TiledSums(instruction, sums)
    rows = found.block * (FACTORS if found.paired else 1)
    columns = mostly_whole(sums.result[-1], WIDTH)
    return found if found.step and rows >= LEAST_ROWS and columns else None
