"""The times of kernels that mostly move bytes: movers, and sums over small windows."""

from math import prod
from typing import Final

import numpy as np

from mallorn.core.compute_capability import SECTOR, WARP_SIZE
from mallorn.core.values.machine import peak_gflops
from mallorn.costmodels.base import Column
from mallorn.searchers.roller.gpu.kernel_time import OVERHEAD_REGISTERS, RESULTS_FILLED, KernelWork
from mallorn.searchers.roller.gpu.sketch_model import UNKNOWN_US, Choices, SketchModel, UnknownKind
from mallorn.searchers.tile_factorizations import Rows

_ORDER: Final = 0.1  # power of the guess that only orders candidates
_WORD_BYTES: Final = 4


class Mover(UnknownKind):
    """The bytes over the bandwidth. The guess for unknown kinds orders the candidates."""

    def time_us(self, rows: Rows) -> Column | None:
        return self._time_us(rows)

    def _time_us(self, rows: Rows) -> Column:
        moved = prod(self.nests[-1].write.shape) * float(self.facts["bytes"])
        us = self.machine.fork_us + moved / self.machine.memory_gbytes_per_sec / 1e3
        return np.asarray(us * (super()._time_us(rows) / UNKNOWN_US) ** _ORDER)


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
            own = choices[f"{name} own"] * (choices["lanes"] if name == "last" else 1)
            tile, step, terms = own * choices[f"{name} threads"], 1, 1
            if self.facts["is_moving"][place]:
                index = next(index for index in image.indices if place in dict(index))
                step = dict(index)[place]
                terms = max(nest.axes[axis].extent for axis, _ in index if nest.axes[axis].reduced)
            is_repeated = is_by_rows and terms > 1  # the first moving axis is read row by row
            is_by_rows &= not is_repeated
            read = (own - 1) * step + terms
            blocks = blocks * np.ceil(spatial[place] / tile)
            threads, results, of_block = threads * tile / own, results * own, of_block * tile
            block_patch = block_patch * ((tile - 1) * step + terms)
            loads = loads * (own * terms if is_repeated else read)
            patch = patch * (own if is_repeated else read)
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
