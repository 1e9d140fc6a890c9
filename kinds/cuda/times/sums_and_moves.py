"""The times of sums by many threads or over small windows, and of moves of bytes."""

from math import prod
from typing import Final

import numpy as np

from mallorn.core.values.machine import peak_gflops
from mallorn.costmodels.base import Column
from mallorn.kinds.cuda.compute_capability import SECTOR, WARP_SIZE
from mallorn.kinds.cuda.times import sketch_model
from mallorn.kinds.cuda.times.kernel_time import (
    LATENCY_US,
    OVERHEAD_REGISTERS,
    RESULTS_FILLED,
    VECTOR_BYTES,
    KernelWork,
    iterations_ahead,
)
from mallorn.searchers.tile_factorizations import Rows

_TERM_INSTRUCTIONS: Final = 3.0  # to convert, multiply and add one term
_SUM_BYTES: Final = 4
_INSTRUCTIONS: Final = 4.0  # per element of each pass of a chain
_FOLD_US: Final = 0.05  # of each halving of a sum over threads
_ORDER: Final = 0.1  # power of the guess that only orders candidates
_WORD_BYTES: Final = 4


class SumByThreads(sketch_model.SketchModel):
    """Sums whose terms, or whose results, are neighbours in memory."""

    def kernel(self, choices: sketch_model.Choices) -> KernelWork:
        narrow, (results, depth) = float(self.facts["narrow"]), self.results_and_depth()
        sums = results / narrow
        team, lanes = choices["threads of a sum"], choices["lanes"]
        if self.facts["is_depth_innermost"]:
            rows, own = choices["sums block"], float(self.facts.get("own", 1))
            block_sums, across, run = rows * own, rows, lanes * team
            at_a_time, of_thread = choices.ones() * lanes, choices.ones() * own * narrow
            in_shared = np.where(team > WARP_SIZE, block_sums * team / WARP_SIZE, 0)
        else:
            across, own = choices["groups of a block"], 1.0
            block_sums, run = across * lanes, lanes * across
            at_a_time, of_thread = choices["steps of a thread at a time"], lanes * narrow
            in_shared = team * block_sums * narrow
        threads = across * team
        warps = np.ceil(threads / WARP_SIZE)
        iterations = np.ceil(depth / (team * at_a_time))
        large = other_bytes = 2.0  # per term
        if self.largest_sum is not None:
            *small_operands, large_operand = sorted(map(sketch_model.size_bytes, self.largest_sum.reads))
            large = large_operand / (sums * depth)
            other_bytes = sum(small_operands) / (depth * narrow)
        terms = own * at_a_time if self.facts["is_depth_innermost"] else lanes * at_a_time
        request = terms * large  # bytes of a thread in an iteration
        of_others = narrow * at_a_time * other_bytes
        loads = np.maximum(terms / lanes, request / VECTOR_BYTES) + np.ceil(of_others / VECTOR_BYTES)
        overlapped_iterations = iterations_ahead(iterations, terms * narrow, choices["unrolled steps"])
        waste = np.maximum(1, SECTOR / (run * large))
        folding = 2 * np.log2(np.maximum(2, np.minimum(team, WARP_SIZE))) * of_thread
        return KernelWork(
            blocks=np.ceil(sums / block_sums),
            threads=threads,
            registers=OVERHEAD_REGISTERS + of_thread + overlapped_iterations * request / 4,
            shared_bytes=in_shared * _SUM_BYTES,
            steps=iterations / overlapped_iterations + 1,
            bytes_in_flight=threads * request * overlapped_iterations,
            l2_bytes=block_sums * depth * large * waste + narrow * depth * other_bytes,
            memory_bytes=self.memory_bytes() * waste,
            instructions=warps * (iterations * (2 * loads + _TERM_INSTRUCTIONS * terms * narrow) + folding),
            shared_traffic=threads * iterations * of_others + 2 * in_shared * _SUM_BYTES,
            operations=2 * block_sums * narrow * depth,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads * terms * narrow / RESULTS_FILLED,
        )


class RowReduction(SumByThreads):
    """Groups of threads reduce rows; each reduction, and the last block, is a pass."""

    def kernel(self, choices: sketch_model.Choices) -> KernelWork:
        if "narrow" in self.facts:  # a single sum
            return super().kernel(choices)
        rows, depth = self.results_and_depth()
        passes = float(self.facts["sums"]) + 1
        element, result = 4.0, 4.0
        if self.largest_sum is not None:
            element = max(read.element_bytes for read in self.largest_sum.reads)
            result = self.nests[-1].write.element_bytes
        team, lanes = choices["threads of a row"], choices["lanes"]
        block_rows = choices["rows block"]
        threads = team * block_rows
        warps = np.ceil(threads / WARP_SIZE)
        iterations = np.ceil(depth / (lanes * team))
        overlapped_iterations = iterations_ahead(iterations, lanes, choices["unrolled steps"])
        row_bytes = block_rows * depth * element
        kept_bytes = row_bytes if self.facts["is_kept"] else choices.ones() * 0
        waste = np.maximum(1, SECTOR / (team * lanes * element))
        loads = np.maximum(1, lanes * element / VECTOR_BYTES)
        folds = (passes - 1) * np.log2(np.maximum(2, team))
        return KernelWork(
            blocks=np.ceil(rows / block_rows),
            threads=threads,
            registers=OVERHEAD_REGISTERS + lanes * overlapped_iterations,
            shared_bytes=kept_bytes + passes * block_rows * 4,
            steps=iterations / overlapped_iterations + folds * _FOLD_US / LATENCY_US + passes,
            bytes_in_flight=threads * lanes * element * overlapped_iterations,
            l2_bytes=(row_bytes + block_rows * depth * result) * waste,
            memory_bytes=self.memory_bytes() * waste,
            instructions=warps * iterations * passes * (loads * 2 + _INSTRUCTIONS * lanes),
            shared_traffic=(passes + 1) * row_bytes,
            operations=2 * passes * block_rows * depth,
            peak_gflops=peak_gflops(self.machine, ["float32"]),
            filling=threads * lanes / RESULTS_FILLED,
        )


class Mover(sketch_model.UnknownKind):
    """The bytes over the bandwidth. The guess for unknown kinds orders the candidates."""

    def time_us(self, rows: Rows) -> Column | None:
        return self._time_us(rows)

    def _time_us(self, rows: Rows) -> Column:
        moved = prod(self.nests[-1].write.shape) * float(self.facts["bytes"])
        us = self.machine.fork_us + moved / self.machine.memory_gbytes_per_sec / 1e3
        return np.asarray(us * (super()._time_us(rows) / sketch_model.UNKNOWN_US) ** _ORDER)


class Window(sketch_model.SketchModel):
    """Sums over windows, whose overlaps are read from the cache of a multiprocessor."""

    def kernel(self, choices: sketch_model.Choices) -> KernelWork:
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
