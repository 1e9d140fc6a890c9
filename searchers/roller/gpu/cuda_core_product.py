"""The time of a product on CUDA cores, with tiles copied to shared memory in stages."""

from math import prod
from typing import Final

import numpy as np

from mallorn.core.compute_capability import SECTOR, WARP_SIZE
from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.costmodels.base import Column
from mallorn.searchers.roller.gpu.kernel_time import (
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    VECTOR_BYTES,
    KernelWork,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices, SketchModel

_COPY_INSTRUCTIONS: Final = 4  # of a lane per copy, with its addresses and predicate
_REGISTER_BYTES: Final = 4
_LONGEST_GATHER: Final = 4  # elements of a vector that TVM can load from anywhere


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
        results = self.extent("rows") * self.extent("columns") * prod(facts["neighbours"])
        depth = self.extent("depth") * short
        batch = self.repeats(results * depth)
        threads = choices["rows threads"] * choices["columns threads"]
        warps = np.ceil(threads / WARP_SIZE)
        blocks = choices["rows grid"] * choices["columns grid"] * splits * batch

        # Of a step: copies of a tile of each operand, and each warp's loads from these tiles.
        registers = OVERHEAD_REGISTERS + own[0] * own[1] * sums / _REGISTER_BYTES
        tile_bytes, sector_bytes, shared_bytes, loaded_bytes = np.zeros((4, len(threads)))
        copies, loads = np.zeros((2, len(threads)))
        is_refused = np.zeros(len(threads), dtype=bool)
        for index, side in enumerate((rows, columns)):
            operand, vector = element_bytes(facts["operands"][index]), facts["vectors"][index]
            is_row, neighbours = facts["depth_innermost"][index], facts["neighbours"][index]
            unit = int(VECTOR_BYTES / operand)
            read = min(unit, short if is_row else neighbours)
            width = vector // 2 if 1 < vector == read else vector
            tile = side * deep * operand
            run = (deep if is_row else side) * operand  # bytes that are neighbours in memory
            tile_bytes += tile
            sector_bytes += tile * _sectors_ratio(run, width * operand, vector > 1)
            shared_bytes += tile + (side * ((unit - deep) % (2 * unit)) * operand if is_row else 0)
            copies += tile / operand / width / WARP_SIZE
            requests = warps * deep * own[index] / read
            loads += requests
            loaded_bytes += requests * max(_REGISTER_BYTES, read * operand) * WARP_SIZE
            # TVM writes no valid CUDA for a longer vector that crosses the end of a run.
            is_refused |= (width > _LONGEST_GATHER) & (run % (width * operand) > 0)
            registers += own[index] * (short if is_row else 1) * max(1.0, operand / _REGISTER_BYTES)

        element = sums if is_split else result  # bytes of a stored number
        is_aligned = is_split or facts["depth_innermost"][1] or facts["neighbours"][1] > 1
        lane_bytes = facts["neighbours"][1] * element
        stored_bytes = rows * columns * element
        stored_bytes *= _sectors_ratio(choices["columns threads"] * lane_bytes, lane_bytes, is_aligned)
        # Blocks that run at a time share what they load through the L2 cache: blocks of a
        # row follow each other.
        at_once = np.minimum(blocks, self.machine.cores)
        side = np.minimum(choices["columns grid"], at_once)
        loaded_numbers = blocks / at_once * (side * columns + np.ceil(at_once / side) * rows)
        widest = max(map(element_bytes, facts["operands"]))
        through_memory = loaded_numbers * (depth / splits * widest)
        partial_bytes = splits * (sums * results * batch) if is_split else 0.0
        return KernelWork(
            blocks=blocks,
            threads=threads,
            registers=registers,
            shared_bytes=stages * shared_bytes,
            steps=steps + 1,
            bytes_in_flight=sector_bytes * max(1, stages - 1),
            l2_bytes=steps * sector_bytes + stored_bytes,
            memory_bytes=np.maximum(self.memory_bytes(), through_memory) + partial_bytes,
            instructions=steps * (_COPY_INSTRUCTIONS * copies + loads + warps * own[0] * own[1] * deep),
            shared_traffic=steps * (tile_bytes + loaded_bytes),
            operations=2 * WARP_SIZE * warps * own[0] * own[1] * steps * deep,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads * own[0] * own[1] / RESULTS_FILLED,
            stages=stages,
            is_refused=is_refused,
            # A second kernel reads the partial sums.
            extra_us=is_split * self.machine.fork_us
            + partial_bytes / (self.machine.memory_gbytes_per_sec * 1e3),
        )


def _sectors_ratio(run: Column, lane_bytes: float, is_aligned: bool) -> Column:
    """Return the bytes of memory sectors that a warp moves for each byte of a tile, whose
    runs of so many bytes follow each other in memory."""
    piece = np.minimum(run, lane_bytes * WARP_SIZE)  # of one instruction
    # On average, a run that begins anywhere touches almost one sector more than its length has.
    return np.asarray(np.maximum(1, SECTOR / piece) if is_aligned else 1 + (SECTOR - 4) / piece)
