"""The time of a product on CUDA cores, whose tiles are copied to shared memory in stages."""

from math import prod
from typing import Final

import numpy as np

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.costmodels.base import Column
from mallorn.searchers.roller.gpu.kernel_time import (
    BANKS_BYTES,
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    SECTOR,
    VECTOR_BYTES,
    KernelWork,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices, SketchModel

_COPY_INSTRUCTIONS: Final = 4  # of a lane per copy, with its addresses and predicate
_REGISTER_BYTES: Final = 4


class CudaCoreProduct(SketchModel):
    """Model of C[batch, rows, columns] += A * B, padded; a thread has groups of neighbours."""

    def kernel(self, choices: Choices) -> KernelWork:
        facts, short, stages = self.facts, self.facts["short"], float(self.facts["stages"])
        sums, result = element_bytes(facts["sums"]), element_bytes(facts["result"])
        is_split = self._places["depth"].choice.width > 2
        steps, splits = choices["depth steps"], choices["depth splits"]
        deep = choices["depth fragments"] * short
        own = [
            choices[f"{side} groups"] * length
            for side, length in zip(("rows", "columns"), facts["neighbours"], strict=True)
        ]
        rows, columns = choices["rows threads"] * own[0], choices["columns threads"] * own[1]
        results = prod(self.extent(side) * n for side, n in zip(("rows", "columns"), facts["neighbours"]))
        depth = self.extent("depth") * short
        # The tiles of one product leave some of the program's loops: these repeat it.
        points = prod(self.largest_sum.extents) if self.largest_sum else 0
        batch = max(1.0, float(round(points / results / depth)))
        threads = choices["rows threads"] * choices["columns threads"]
        warps = np.ceil(threads / WARP_SIZE)
        blocks = choices["rows grid"] * choices["columns grid"] * splits * batch

        # Of a step: copies of a tile of each operand, and each warp's loads from these tiles.
        tile_bytes, sector_bytes, shared_bytes = choices.ones() * 0, choices.ones() * 0, choices.ones() * 0
        copies, loads, loaded_bytes = choices.ones() * 0, choices.ones() * 0, choices.ones() * 0
        registers = own[0] * own[1] * sums / _REGISTER_BYTES
        for index, side in enumerate((rows, columns)):
            size, vector = element_bytes(facts["operands"][index]), facts["vectors"][index]
            is_row = facts["depth_innermost"][index]
            unit = int(VECTOR_BYTES / size)
            read = min(unit, short if is_row else facts["neighbours"][index])
            width = vector // 2 if 1 < vector == read else vector
            tile = side * deep * size
            run = (deep if is_row else side) * size  # neighbours in memory
            tile_bytes += tile
            sector_bytes += tile * _sectors_ratio(run, WARP_SIZE * width * size, vector * size)
            padding = (unit - deep) % (2 * unit) if is_row else 0
            shared_bytes += side * (deep + padding) * size
            copies += tile / size / width / WARP_SIZE
            requests = warps * deep * own[index] / read
            loads += requests
            loaded_bytes += requests * np.maximum(1, read * size / _REGISTER_BYTES) * BANKS_BYTES
            registers += own[index] * (short if is_row else 1) * size / _REGISTER_BYTES

        stored_bytes = rows * columns * (sums if is_split else result)
        ...
