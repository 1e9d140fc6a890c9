"""The time of a product on CUDA cores, whose tiles are copied to shared memory in stages."""

from typing import Final

import numpy as np

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.searchers.roller.gpu.kernel_time import (
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    SECTOR,
    VECTOR_BYTES,
    KernelWork,
)
from mallorn.searchers.roller.gpu.product_model import ProductModel
from mallorn.searchers.roller.gpu.sketch_model import Choices

_COPY_INSTRUCTIONS: Final = 4  # of a lane per copy, with its addresses and predicate


class CudaCoreProduct(ProductModel):
    """A thread computes a tile of rows and columns; fragments of the depth are `short` terms."""

    def kernel(self, choices: Choices) -> KernelWork:
        operand = element_bytes(self.facts["operands"])
        stages = float(self.facts["stages"])
        own_rows, own_columns, short = self.facts["thread"]
        threads = choices["rows threads"] * choices["columns threads"]
        rows, columns = choices["rows threads"] * own_rows, choices["columns threads"] * own_columns
        deep = choices["depth fragments"] * short
        steps, splits = choices["depth steps"], choices["depth splits"]
        blocks = choices["rows grid"] * choices["columns grid"] * splits * self.batch()
        warps = np.ceil(threads / WARP_SIZE)

        is_row = self.facts.get("depth_innermost", (True, False))
        # Neighbours in memory of each operand's tile.
        runs = [np.where(is_row[0], deep, rows), np.where(is_row[1], deep, columns)]
        tiles = [rows * deep * operand, columns * deep * operand]
        step_bytes = sum(
            size * np.maximum(1, SECTOR / (run * operand)) for size, run in zip(tiles, runs, strict=True)
        )
        copies = sum(
            size / WARP_SIZE / min(VECTOR_BYTES, operand * vector)
            for size, vector in zip(tiles, self.facts["vectors"], strict=True)
        )
        # Neighbours are read from shared memory as vectors; a warp's lanes along the other side share a read.
        across = np.minimum(choices["columns threads"], WARP_SIZE)
        along = np.maximum(1, WARP_SIZE / across)
        loads = warps * deep * operand * (along * own_rows + across * own_columns)
        requests = warps * deep * operand * (own_rows + own_columns) / VECTOR_BYTES
        results = float(own_rows * own_columns)
        is_split = self.is_split
        return KernelWork(
            blocks=blocks,
            threads=threads,
            registers=OVERHEAD_REGISTERS + choices.ones() * (results + own_rows + own_columns),
            shared_bytes=stages * (tiles[0] + tiles[1]),
            steps=steps + 1,
            bytes_in_flight=step_bytes * np.maximum(1, stages - 1),
            l2_bytes=steps * step_bytes + rows * columns * element_bytes(self.facts["result"]),
            memory_bytes=self.bytes_through_memory(
                choices["rows group"],
                rows,
                columns,
                blocks,
                self.depth() / splits * operand,
                splits * operand,
            ),
            instructions=steps * (_COPY_INSTRUCTIONS * copies + requests + warps * results * deep),
            shared_traffic=steps * (tiles[0] + tiles[1] + loads),
            operations=2 * rows * columns * steps * deep,
            peak_gflops=peak_gflops(self.machine, [self.facts["operands"]]),
            filling=threads * results / RESULTS_FILLED,
            stages=stages,
            extra_us=self.machine.fork_us if is_split else 0.0,
        )

    def results(self) -> float:
        own_rows, own_columns, _ = self.facts["thread"]
        return float(self.extent("rows") * own_rows * self.extent("columns") * own_columns)

    def depth(self) -> float:
        return float(self.extent("depth") * self.facts["thread"][2])
