"""The time of sums with many threads each, which read every element of a large operand once."""

from typing import Final

import numpy as np

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import peak_gflops
from mallorn.searchers.roller.gpu.kernel_time import (
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    SECTOR,
    Kernel,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices, SketchModel, size_bytes

_VECTOR_BYTES: Final = 16  # of the widest load
_UNROLLED: Final = 4.0  # iterations that nvcc unrolls by itself
_MOST_AHEAD: Final = 8.0  # iterations whose loads are in flight at a time
_TERM_INSTRUCTIONS: Final = 3.0  # to convert, multiply and add one term
_SUM_BYTES: Final = 4


class ThreadSum(SketchModel):
    """Products with a vector, whose terms or whose sums are neighbours in memory."""

    def kernel(self, choices: Choices) -> Kernel:
        narrow, depth, sums = float(self.facts["narrow"]), self.extent("depth"), self.extent("sums")
        team = choices["threads of a sum"]
        if self.facts["is_depth_innermost"]:
            lanes, own = choices["depth lanes"], choices["sums of a thread"]
            across = np.ceil(choices["sums block"] / own)  # teams of a block
            block_sums, blocks = choices["sums block"], choices["sums grid"]
            iterations = np.ceil(choices["depth steps"] / team)
            run = lanes * team
            results = own * narrow
            partial = np.where(team > WARP_SIZE, WARP_SIZE, 0)
        else:
            lanes, own = choices["sums lanes"], choices["depth own"]
            across = choices["groups of a block"]
            block_sums = across * lanes
            blocks = np.ceil(choices["sums groups"] / across)
            iterations = np.ceil(choices["depth steps"] / team)
            run = lanes * across
            results = lanes * narrow
            partial = team * across * lanes * narrow
        threads = across * team
        warps = np.ceil(threads / WARP_SIZE)
        large, others = self._element_bytes(depth * sums, depth)
        terms = own * lanes * narrow  # of a thread in an iteration
        loads = own * np.ceil(lanes * large / _VECTOR_BYTES) + np.ceil(
            narrow * lanes * others / _VECTOR_BYTES
        )
        fits = iterations * terms <= choices["unrolled steps"]
        ahead = np.clip(iterations, 1, np.where(fits, _MOST_AHEAD, _UNROLLED))
        request = own * lanes * large  # bytes of a thread in an iteration
        waste = np.maximum(1, SECTOR / (run * large))
        folding = 2 * np.log2(np.maximum(2, np.minimum(team, WARP_SIZE))) * results
        return Kernel(
            blocks=blocks,
            threads=threads,
            registers=OVERHEAD_REGISTERS + results + ahead * request / 4,
            shared_bytes=partial * _SUM_BYTES,
            steps=iterations / ahead + 1,
            bytes_in_flight=threads * request * ahead,
            l2_bytes=block_sums * depth * large * waste + narrow * depth * others,
            memory_bytes=choices.ones() * self.memory_bytes() * waste,
            instructions=warps * (iterations * (2 * loads + _TERM_INSTRUCTIONS * terms) + folding),
            shared_traffic=threads * iterations * narrow * lanes * others + 2 * partial * _SUM_BYTES,
            operations=2 * block_sums * narrow * depth,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads * results / RESULTS_FILLED,
        )

    def _element_bytes(self, terms: int, depth: int) -> tuple[float, float]:
        """Return the bytes per term of the large operand, and per term of the others."""
        if self.largest_sum is None:
            return 2.0, 2.0
        sizes = sorted(size_bytes(read) for read in self.largest_sum.reads)
        return sizes[-1] / terms, sum(sizes[:-1]) / (depth * self.facts["narrow"])
