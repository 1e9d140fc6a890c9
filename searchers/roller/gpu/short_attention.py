"""The time of attention over few keys in one kernel."""

from typing import Final

import numpy as np

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.searchers.roller.gpu.kernel_time import (
    FRAGMENTS_FILLED,
    LATENCY_US,
    OVERHEAD_REGISTERS,
    VECTOR_BYTES,
    KernelWork,
)
from mallorn.searchers.roller.gpu.sketch_model import Choices, SketchModel

_SIDE: Final = 16  # of a fragment; choices count fragments
_LDMATRIX_BYTES: Final = 512  # that a warp loads at a time
_COPY_INSTRUCTIONS: Final = 4  # of a lane per copy, with its addresses and predicate
_SOFTMAX_INSTRUCTIONS: Final = 24  # per score: mask, exponential and weight
_FOLD_US: Final = 0.2  # of both reductions of rows that a warp computes at a time


class ShortAttentionKernel(SketchModel):
    """Model of two products with all keys, and of the softmax between them."""

    def kernel(self, choices: Choices) -> KernelWork:
        operand, stages = element_bytes(self.facts["operands"]), float(self.facts["stages"])
        rows, keys, width = (self.extent(axis) * _SIDE for axis in ("rows", "keys", "width"))
        heads = self.repeats(rows * keys * width)
        across = choices["width warps"]  # warps that share rows
        warps, own_rows = choices["rows warps"] * across, choices["rows fragments"]
        block_rows = choices["rows warps"] * own_rows * _SIDE
        depth_step, keys_step = (choices[f"{axis} fragments"] * _SIDE for axis in ("depth", "keys"))
        pad = VECTOR_BYTES / operand  # of each row in shared memory
        query_bytes, key_bytes = (count * (depth_step + pad) * operand for count in (block_rows, keys))
        value_bytes = keys_step * (width + pad) * operand
        score_bytes, weight_bytes = (block_rows * (keys + pad) * size for size in (4, operand))
        copy_bytes = (block_rows + 2 * keys) * width * operand
        # Fragments that a warp loads for each of its fragments of the depth of both products.
        loads = (own_rows + keys / _SIDE / across) * width + (own_rows + width / _SIDE / across) * keys
        load_bytes = warps * loads * _SIDE * operand
        groups = block_rows / warps / choices["rows at a time"]
        sums = np.maximum(keys, width) / _SIDE / across * own_rows  # fragments of a warp
        instructions = 4 * block_rows * keys * width / _SIDE**3 + load_bytes / _LDMATRIX_BYTES
        instructions += _COPY_INSTRUCTIONS * copy_bytes / VECTOR_BYTES / WARP_SIZE
        return KernelWork(
            blocks=choices["rows grid"] * heads,
            threads=warps * WARP_SIZE,
            registers=OVERHEAD_REGISTERS + 8 * sums + 4 * operand,
            # TVM stores weights in place of queries, and scores, then values, in place of keys.
            shared_bytes=np.maximum(stages * query_bytes, weight_bytes)
            + np.maximum(stages * np.maximum(key_bytes, value_bytes), score_bytes),
            steps=choices["depth steps"] + choices["keys steps"] + groups * _FOLD_US / LATENCY_US,
            bytes_in_flight=(query_bytes + key_bytes) * (stages - 1),
            l2_bytes=copy_bytes + block_rows * width * operand,
            memory_bytes=choices.ones() * self.memory_bytes(),
            instructions=instructions + _SOFTMAX_INSTRUCTIONS * block_rows * keys / WARP_SIZE,
            shared_traffic=copy_bytes + load_bytes + 3 * score_bytes + weight_bytes,
            operations=4 * block_rows * keys * width,
            peak_gflops=peak_gflops(self.machine, [self.facts["operands"]]),
            filling=warps * sums / FRAGMENTS_FILLED,
            # TVM lowers no uneven share of keys, nor a softmax without a loop over groups of rows.
            is_refused=(keys / _SIDE % across != 0) | (groups < 2),
        )
