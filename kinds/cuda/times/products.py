"""The times of products with tiles in shared memory, and of short attention."""

from math import prod
from typing import Final

import numpy as np

from mallorn.core.values.machine import element_bytes, peak_gflops
from mallorn.costmodels.base import Column
from mallorn.kinds.cuda.compute_capability import SECTOR, WARP_SIZE
from mallorn.kinds.cuda.times.kernel_time import (
    FRAGMENTS_FILLED,
    LATENCY_US,
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    VECTOR_BYTES,
    KernelWork,
)
from mallorn.kinds.cuda.times.sketch_model import Choices, SketchModel

_MMA_DEPTH_BYTES: Final = 32  # of the depth that one instruction multiplies, by 8 columns
_LDMATRIX_BYTES: Final = 512  # that a warp loads at a time
_COPY_INSTRUCTIONS: Final = 4  # of a lane per copy, with its addresses and predicate
_REGISTER_BYTES: Final = 4
_LONGEST_GATHER: Final = 4  # elements of a vector that TVM can load from anywhere
_SIDE: Final = 16  # of a fragment; choices count fragments
_SOFTMAX_INSTRUCTIONS: Final = 24  # per score: mask, exponential and weight
_FOLD_US: Final = 0.2  # of both reductions of rows that a warp computes at a time


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
        # Blocks that run together share loads through L2: those of a row follow each other.
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
