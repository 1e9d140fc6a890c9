"""The times of kernels that mostly move bytes: movers, and sums over small windows."""

from typing import Final

import numpy as np

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import peak_gflops
from mallorn.searchers.roller.gpu.kernel_time import (
    BANKS_BYTES,
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    SECTOR,
    KernelWork,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices, SketchModel

_TILE_ROWS: Final = 32  # of a transposed tile
_WORD_BYTES: Final = 4
_INSTRUCTIONS: Final = 4.0  # per element, besides loads and stores


class Mover(SketchModel):
    """Vectors that threads move, or tiles that pass through shared memory."""

    def kernel(self, choices: Choices) -> KernelWork:
        elements = float(np.prod(self.nests[-1].write.shape))
        threads, lanes = choices["threads"], choices["lanes"]
        of_block, requests = threads * lanes * choices["vectors of a thread"], 2 / lanes
        tile_bytes = choices.ones() * 0
        if tiled := self.facts.get("tiled"):  # bytes of an element that passes through shared memory
            of_block = BANKS_BYTES / tiled * _TILE_ROWS * choices["tiles of a block"]
            requests = 2 + 1 / lanes + 1 / choices["lanes of loads"]
            tile_bytes = of_block * tiled
        of_thread = np.ceil(of_block / threads)
        moved = self.facts["read"] + self.facts["written"]
        return KernelWork(
            blocks=np.ceil(elements / of_block),
            threads=threads,
            registers=OVERHEAD_REGISTERS + of_thread,
            shared_bytes=tile_bytes,
            steps=choices.ones() * (2 if tiled else 1),
            bytes_in_flight=of_block * self.facts["read"],
            l2_bytes=of_block * moved,
            memory_bytes=choices.ones() * elements * moved,
            instructions=np.ceil(threads / WARP_SIZE) * of_thread * (requests + _INSTRUCTIONS),
            shared_traffic=2 * tile_bytes,
            operations=of_block,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads / RESULTS_FILLED,
        )


class Window(SketchModel):
    """Sums over windows, whose overlaps are read from the cache of a multiprocessor."""

    def kernel(self, choices: Choices) -> KernelWork:
        nest, (_, depth) = self.largest_sum or self.nests[-1], self.results_and_depth()
        spatial = [axis.extent for axis in nest.axes if not axis.reduced]
        image = max(nest.reads, key=lambda read: len(read.axes))
        blocks = choices.ones() * np.prod(spatial[:-3])
        threads, results, patch, loads, block_patch, of_block = (choices.ones() for _ in range(6))
        is_by_rows = bool(self.facts["by_rows"])
        for place, name in enumerate(("first", "second", "last"), len(spatial) - 3):
            step, terms = 1, 1
            if self.facts["is_moving"][place]:
                index = next(index for index in image.indices if place in dict(index))
                step, terms = (
                    dict(index)[place],
                    max(nest.axes[axis].extent for axis, _ in index if nest.axes[axis].reduced),
                )
            own = choices[f"{name} own"] * (choices["lanes"] if name == "last" else 1)
            tile = own * choices[f"{name} threads"]
            read = (own - 1) * step + terms
            blocks = blocks * np.ceil(spatial[place] / tile)
            threads, results, of_block = threads * tile / own, results * own, of_block * tile
            block_patch = block_patch * ((tile - 1) * step + terms)
            is_repeated = is_by_rows and terms > 1  # the first moving axis is read row by row
            loads, patch = (
                loads * (own * terms if is_repeated else read),
                patch * (own if is_repeated else read),
            )
            is_by_rows &= not is_repeated
        lanes, size = choices["lanes"], image.element_bytes
        weights = depth * lanes * (len(nest.reads) > 1)
        run = lanes * choices["last threads"] * size  # bytes of neighbours that threads read
        waste = np.maximum(1, SECTOR / run)
        in_cache = loads * (waste + bool(self.facts["is_moving"][-1]) * SECTOR / run)
        accesses = (loads + weights + results) / lanes
        return KernelWork(
            blocks=blocks,
            threads=threads,
            registers=OVERHEAD_REGISTERS + (patch + lanes) * size / _WORD_BYTES + 2 * results,
            shared_bytes=choices.ones() * 0,
            steps=choices.ones(),
            bytes_in_flight=threads * patch * size,
            l2_bytes=(block_patch + of_block + weights * choices["last threads"]) * size * waste,
            memory_bytes=choices.ones() * self.memory_bytes(),
            instructions=np.ceil(threads / WARP_SIZE) * (2 * accesses + depth * results),
            shared_traffic=threads * (in_cache + weights) * size,
            operations=2 * depth * of_block,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads * results / RESULTS_FILLED,
        )
