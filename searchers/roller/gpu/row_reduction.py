"""The time of reductions of rows and of what follows, in one kernel that keeps or reads rows again."""

from typing import Final

import numpy as np

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import peak_gflops
from mallorn.searchers.roller.gpu.kernel_time import (
    LATENCY_US,
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    SECTOR,
    VECTOR_BYTES,
    KernelWork,
    iterations_ahead,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices
from mallorn.searchers.roller.gpu.thread_sum import SumByThreads

_INSTRUCTIONS: Final = 4.0  # per element of each pass
_FOLD_US: Final = 0.05  # of each halving of a sum over threads


class RowReduction(SumByThreads):
    """Each group of threads reduces whole rows; each reduction, and the last block, is a pass."""

    def kernel(self, choices: Choices) -> KernelWork:
        if "narrow" in self.facts:  # a single sum
            return super().kernel(choices)
        rows, depth = self.results_and_depth()
        passes = float(self.facts["sums"]) + 1
        element, result = 4.0, 4.0
        if self.largest_sum is not None:
            element = max(read.element_bytes for read in self.largest_sum.reads)
            result = self.nests[-1].write.element_bytes
        team, lanes, block_rows = choices["threads of a row"], choices["lanes"], choices["rows block"]
        threads = team * block_rows
        warps = np.ceil(threads / WARP_SIZE)
        iterations = np.ceil(depth / (lanes * team))
        ahead = iterations_ahead(iterations, lanes, choices["unrolled steps"])
        row_bytes = block_rows * depth * element
        kept = row_bytes if self.facts["is_kept"] else choices.ones() * 0
        waste = np.maximum(1, SECTOR / (team * lanes * element))
        loads = np.maximum(1, lanes * element / VECTOR_BYTES)
        folds = (passes - 1) * np.log2(np.maximum(2, team))
        return KernelWork(
            blocks=np.ceil(rows / block_rows),
            threads=threads,
            registers=OVERHEAD_REGISTERS + lanes * ahead,
            shared_bytes=kept + passes * block_rows * 4,
            steps=iterations / ahead + folds * _FOLD_US / LATENCY_US + passes,
            bytes_in_flight=threads * lanes * element * ahead,
            l2_bytes=(row_bytes + block_rows * depth * result) * waste,
            memory_bytes=self.memory_bytes() * waste,
            instructions=warps * iterations * passes * (loads * 2 + _INSTRUCTIONS * lanes),
            shared_traffic=(passes + 1) * row_bytes,
            operations=2 * passes * block_rows * depth,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads * lanes / RESULTS_FILLED,
        )
