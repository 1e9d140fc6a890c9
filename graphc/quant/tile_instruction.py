"""Instructions that multiply tiles of numbers, as LLVM functions, whatever the instruction set."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from mallorn.graphc.quant.dot_product_function import DotInstruction

ROWS, COLUMNS, BYTES = 16, 16, 64  # rows of a tile, columns of sums, and most bytes of a row at once
FACTORS = 2  # two tiles of data times two of weights at once
ALLOWED = "mallorn_tiles_allowed"
RULE = "mallorn_tiles"
PARAMETERS = (
    "ptr %x0, ptr %x1, i64 %x.row, i64 %x.place, i64 %places, i64 %steps, i64 %wide, "
    "ptr %w0, ptr %w1, ptr %z0, ptr %z1, i64 %z.row, i32 %rows0, i32 %rows1"
)


@dataclass(frozen=True)
class TileInstruction(ABC):
    """The required CPU feature, LLVM's intrinsic for products of tiles, and data types."""

    feature: str
    intrinsic: str
    numbers: DotInstruction

    @property
    def element_bytes(self) -> int:
        return np.dtype(self.numbers.data).itemsize

    @property
    def function(self) -> str:
        """Name of the function that sums two data tiles times two weight tiles."""
        return f"{RULE}_{self.intrinsic}"

    @property
    @abstractmethod
    def text(self) -> str:
        """The LLVM text of the function, and of ALLOWED, which says whether to call it."""

    @property
    def portable_llvm_text(self) -> str:
        """The LLVM text for any processor, which reports that it has no tiles."""
        return f"""
define linkonce_odr i32 @{ALLOWED}() {{
  ret i32 0
}}
define linkonce_odr void @{self.function}({PARAMETERS}) {{
  ret void
}}
"""
