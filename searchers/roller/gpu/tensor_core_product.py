"""The time of a tensor-core product, whose tiles are copied to shared memory in stages."""

from typing import Final

import numpy as np

from mallorn.core.compute_capability import SECTOR, WARP_SIZE
from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.searchers.roller.gpu.kernel_time import (
    FRAGMENTS_FILLED,
    OVERHEAD_REGISTERS,
    VECTOR_BYTES,
    KernelWork,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices, SketchModel

_MMA_DEPTH_BYTES: Final = 32  # of the depth that one instruction multiplies, by 8 columns
_LDMATRIX_BYTES: Final = 512  # that a warp loads at a time
_COPY_INSTRUCTIONS: Final = 4  # of a lane per copy, with its addresses and predicate


class TensorCoreProduct(SketchModel):
    """Model of C[batch, rows, columns] += A * B, padded; factors count fragments of an axis."""

    def kernel(self, choices: Choices) -> KernelWork:
        side_rows, side_columns, side_depth = self.facts["fragment"]
        # Whether a second kernel adds partial sums.
        is_split = self._places["depth"].choice.width > 2
        results = self.extent("rows") * side_rows * self.extent("columns") * side_columns
        depth = self.extent("depth") * side_depth
        batch = self.repeats(results * depth)
        operand = element_bytes(self.facts["operands"])
        sums = element_bytes(self.facts["sums"])
        stages = float(self.facts["stages"])
        fragments = [choices[f"{axis} fragments"] for axis in ("rows", "columns", "depth")]
        warps = choices["rows warps"], choices["columns warps"]
        rows = warps[0] * fragments[0] * side_rows
        columns = warps[1] * fragments[1] * side_columns
        step_depth = fragments[2] * side_depth
        steps, splits = choices["depth steps"], choices["depth splits"]
        all_warps = warps[0] * warps[1]
        own = fragments[0] * fragments[1]
        blocks = choices["rows grid"] * choices["rows group"] * choices["columns grid"]
        blocks = blocks * splits * batch

        # One step copies a tile of each operand from memory; each warp loads its fragments.
        is_row = self.facts["depth_innermost"]
        # Neighbours in memory of each operand's tile.
        runs = [np.where(is_row[0], step_depth, rows), np.where(is_row[1], step_depth, columns)]
        # A permuted tile has rows of 32 or a multiple of 64 numbers.
        is_permutable = [(run == 32) | (run % 64 == 0) for run in runs]
        tiles = rows * step_depth * operand, columns * step_depth * operand
        step_bytes = sum(
            t * np.maximum(1, SECTOR / (run * operand)) for t, run in zip(tiles, runs, strict=True)
        )
        vectors = [min(VECTOR_BYTES, operand * lanes) for lanes in self.facts["vectors"]]
        # TVM does not lower a split product whose copies leave some threads without work.
        has_rest = [
            size / WARP_SIZE / vector % all_warps != 0 for size, vector in zip(tiles, vectors, strict=True)
        ]
        copies = sum(t / WARP_SIZE / vector for t, vector in zip(tiles, vectors, strict=True))
        fragment_bytes = side_rows * side_depth * operand
        loads = all_warps * (fragments[0] + fragments[1]) * fragments[2] * fragment_bytes
        products = (
            all_warps * own * fragments[2] * (side_columns / 8) * (side_depth * operand / _MMA_DEPTH_BYTES)
        )
        result_bytes = rows * columns * sums
        instructions = steps * (_COPY_INSTRUCTIONS * copies + loads / _LDMATRIX_BYTES + products)
        instructions += result_bytes / WARP_SIZE * (1 / 4 + 3 / VECTOR_BYTES)
        shared_bytes = stages * (tiles[0] + tiles[1]) + result_bytes
        of_sums = own * side_rows * side_columns * sums / 4 / WARP_SIZE
        of_operands = (fragments[0] + fragments[1]) * fragment_bytes / 4 / WARP_SIZE
        # Blocks that run at a time share what they load through the L2 cache: the rows of a
        # group, and as many columns as follow.
        at_once = np.minimum(blocks, self.machine.cores)
        side = np.minimum(choices["rows group"], at_once)
        loaded_numbers = blocks / at_once * (side * rows + np.ceil(at_once / side) * columns)
        loaded_bytes = loaded_numbers * (depth / splits * operand)
        partial_bytes = 2 * (splits * sums) * results * batch if is_split else 0.0
        return KernelWork(
            blocks=blocks,
            threads=all_warps * WARP_SIZE,
            registers=OVERHEAD_REGISTERS + of_sums + of_operands,
            shared_bytes=shared_bytes,
            steps=steps + 1,
            bytes_in_flight=step_bytes * np.maximum(1, stages - 1),
            l2_bytes=steps * step_bytes + rows * columns * element_bytes(self.facts["result"]),
            memory_bytes=np.maximum(self.memory_bytes(), loaded_bytes) + partial_bytes,
            instructions=instructions,
            # Results are stored with bank conflicts.
            shared_traffic=steps * (tiles[0] + tiles[1] + loads) + 3 * result_bytes,
            operations=2 * rows * columns * steps * step_depth,
            peak_gflops=peak_gflops(self.machine, [self.facts["operands"]]),
            filling=all_warps * own / FRAGMENTS_FILLED,
            is_refused=(bool(self.facts["permuted"]) & ~(is_permutable[0] & is_permutable[1]))
            | (is_split & (has_rest[0] | has_rest[1])),
            stages=stages,
            extra_us=self.machine.fork_us if is_split else 0.0,
        )
