"""Time models of the sketches of MetaSchedule's rules for GPUs.

MetaSchedule's rules tile as SSSRRSRS. Without tensor cores, the first three spatial levels
are blocks, virtual threads and threads; with tensor cores, two levels of blocks, and warps.
Each step of the first reduction level loads one tile of each operand into shared memory.
Sketches without tiles choose the number of threads per sum.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import log2, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.machine import Machine, peak_gflops
from mallorn.costmodels.base import Column
from mallorn.kinds.cuda import compute_capability as cuda
from mallorn.kinds.cuda.times import kernel_time
from mallorn.kinds.cuda.times.sketch_model import GpuModel, size_bytes
from mallorn.searchers.loop_nest import Access, Nest, matrix_product_nest
from mallorn.searchers.sketch_blocks import PlacedChoice, blocks, placed_choices
from mallorn.searchers.space import ChoiceKind, Sketch
from mallorn.searchers.tile_factorizations import Rows, divisors

Table = NDArray[np.int64]

GPU_LEVELS, GPU_SUM_LEVELS = 5, 3
_BYTES_IN_FLIGHT: Final = 64.0  # bytes that one thread loads at a time
#: Recorded kernels on CUDA cores were 1.5 to 2.6 times slower than the model's best estimates
#: (docs/results/gpu/h200_trials.jsonl).
_CUDA_CORES_SLOWER: Final = 2.2
_EXPOSED: Final = 0.3  # least share of the shorter time that is not overlapped
_DEEPEST, _DEEPEST_FRAGMENTS = 32, 64  # largest depth of a step, without/with tensor cores
_PIPELINE: Final = r',(\d+)\]\],\["software_pipeline_stage"\]'  # number of the last stage
_ROW_DEPTH: Final = 32  # mma.sync's rule requires a multiple of this depth
_MOST_ROWS: Final = 40_000
_SEED: Final = 0
_VARIANTS: Final = ((64, 8), (64, 4), (512, 8))  # unroll limit, elements per load
_LATER: Final = 0.1  # relative penalty of each variant over the one before
_USUAL_THREADS: Final = 128  # threads of a block without cross-thread reductions
_STEP_US: Final = 0.06  # time of one serial addition of a thread
_BARRIER_US: Final = 0.05  # time of each halving step of a cross-thread reduction
#: Rows, columns and depth of each tensor-core instruction.
_FRAGMENTS: Final = {"wmma_sync_16x16x16": (16, 16, 16), "mma_sync_m16n8k8": (16, 8, 8)}


class TiledSketch(GpuModel):
    """The model of a sketch with one block that is tiled in all levels."""

    def __init__(self, sketch: Sketch, nests: Sequence[Nest], machine: Machine) -> None:
        (self._block,) = blocks(sketch)
        self._sketch, self._machine = sketch, machine
        self._spatial = len(self._block.spatial)
        self._fragment = next((size for name, size in _FRAGMENTS.items() if name in sketch.trace), None)
        self._stages = 1 + max(map(int, re.findall(_PIPELINE, sketch.trace)), default=0)
        self._loads_whole_rows = "mma_sync_m" in sketch.trace
        # TVM writes no valid CUDA for a longer vector that crosses the end of a row.
        all_reads = [read for nest in nests for read in nest.reads if any(axis.reduced for axis in nest.axes)]
        self._most_lanes = 8 if all(read.shape[-1] % 8 == 0 for read in all_reads) else 4
        if self._fragment is None:
            self._nest, self._batch = self._block.nest(nests), 1.0
            return
        # Loops in units of fragments, and how often axes that are not tiled repeat them.
        reduction_nests = [nest for nest in nests if any(axis.reduced for axis in nest.axes)]
        largest = max(reduction_nests, key=lambda nest: prod(nest.extents), default=None)
        operand = sums = 2.0
        if largest is not None:
            operand = max((read.element_bytes for read in largest.reads), default=2.0)
            sums = largest.write.element_bytes
        rows, columns, depth = self._fragment
        spatial = [place.choice.extent for place in self._block.spatial]
        reductions = [place.choice.extent for place in self._block.reduced]
        nest = matrix_product_nest(tuple(spatial), tuple(reductions))
        sizes = operand * rows * depth, operand * depth * columns
        reads = [replace(r, element_bytes=size) for r, size in zip(nest.reads, sizes, strict=True)]
        write = replace(nest.write, element_bytes=sums * rows * columns)
        self._nest = Nest(nest.axes, tuple(reads), write)
        points = prod(spatial) * prod(reductions) * rows * columns * depth
        self._batch = max(1.0, round(prod(largest.extents) / points) if largest else 1.0)

    @staticmethod
    def fits(sketch: Sketch) -> bool:
        widths = [
            {place.choice.width for place in places}
            for block in blocks(sketch)
            for places in (block.spatial, block.reduced)
        ]
        return len(widths) == 2 and widths[0] == {GPU_LEVELS} and widths[1] <= {GPU_SUM_LEVELS}

    def time_us(self, rows: Rows) -> Column:
        tiles = np.hstack([rows[:, place.columns] for place in self._block.tile_choices])
        return self._tiles_us(tiles.astype(np.int64))

    def best(self, count: int) -> tuple[Rows, Column]:
        best = self._best_tiles(count)
        us = self._tiles_us(best.astype(np.int64))
        rows = np.zeros((len(best), self._sketch.decision_count), dtype=np.int32)
        ends = np.cumsum([place.choice.width for place in self._block.tile_choices])[:-1]
        for place, factors in zip(self._block.tile_choices, np.split(best, ends, axis=1), strict=True):
            rows[:, place.columns] = factors
        variants = [
            _set_list_choices(self._sketch, rows, unroll, min(vector, self._most_lanes))
            for unroll, vector in _VARIANTS
        ]
        slower = [us * (1 + _LATER * index) for index in range(len(variants))]
        first = np.sort(np.unique(np.concatenate(variants), axis=0, return_index=True)[1])
        return np.concatenate(variants)[first], np.concatenate(slower)[first]

    def _best_tiles(self, count: int) -> Rows:
        """Return up to `count` rows of tiles, least estimated time first."""
        tables = []
        for place in self._block.spatial:
            limits = (1, 4, 256, 4, 8) if self._fragment is None else (1, 1, 8, 4, 4)
            table = _tilings(place.choice.extent, GPU_LEVELS, limits)
            if self._fragment is not None:
                grid = np.array([max(f for f in divisors(n) if f <= 8) for n in table[:, 0].tolist()])
                table[:, 0] //= grid
                table[:, 1] = grid
            tables.append(table)
        tables += [
            _tilings(p.choice.extent, p.choice.width, (1, 8, p.choice.limit or 64))
            for p in self._block.reduced
        ]
        sizes = [len(table) for table in tables]
        if prod(sizes) <= _MOST_ROWS:
            picks = np.indices(sizes).reshape(len(sizes), -1)
        else:
            rng = np.random.default_rng(_SEED)
            picks = np.stack([rng.integers(size, size=_MOST_ROWS) for size in sizes])
        rows = np.hstack([table[pick] for table, pick in zip(tables, picks, strict=True)])
        rows = np.unique(rows, axis=0)
        return rows[np.argsort(self._tiles_us(rows), kind="stable")[:count]].astype(np.int32)

    def _tiles_us(self, rows: Table) -> Column:
        """Return estimated times of rows of tiles, with penalties for exceeded limits."""
        machine, spatial = self._machine, self._spatial
        tiles, depth = np.split(rows.astype(np.float64), [GPU_LEVELS * spatial], axis=1)
        tiles = tiles.reshape(len(rows), spatial, GPU_LEVELS)
        depth = depth.reshape(len(rows), -1, GPU_SUM_LEVELS)
        across = tiles.prod(axis=1)
        cores = self._fragment is not None
        blocks = across[:, 0] * (across[:, 1] if cores else 1.0) * self._batch
        threads = across[:, 2] * (cuda.WARP_SIZE if cores else 1)
        warps = np.ceil(threads / cuda.WARP_SIZE)
        shared_tile = tiles[:, :, 2 if cores else 1 :].prod(axis=2)
        own_tile = tiles[:, :, 3:].prod(axis=2) * (1.0 if cores else tiles[:, :, 1])
        steps, step_depth = depth[:, :, 0].prod(axis=1), depth[:, :, 1:].prod(axis=2)
        tile_bytes, shared_bytes = np.zeros(len(rows)), np.zeros(len(rows))
        for read in self._nest.reads:
            size, waste = loaded_bytes(read, np.hstack([shared_tile, step_depth]))
            tile_bytes += size * waste
            shared_bytes += self._stages * size
        sums = own_tile.prod(axis=1)
        registers = sums + kernel_time.OVERHEAD_REGISTERS
        if cores:
            of_sums = self._nest.write.element_bytes / (4 * cuda.WARP_SIZE)
            registers = (
                sums * of_sums + 8 * (own_tile[:, 0] + own_tile[:, -1]) + kernel_time.OVERHEAD_REGISTERS
            )
            if self._stages == 1:
                shared_bytes = (
                    shared_bytes
                    + across[:, 2] * tiles[:, -1, 3:].prod(axis=1) * self._nest.write.element_bytes
                )
        limit = machine.caches[0].bytes - cuda.SHARED_RESERVED if cores else cuda.SHARED_PER_BLOCK
        excess = (
            _excess_factor(threads, cuda.THREADS_PER_BLOCK)
            * _excess_factor(shared_bytes, limit)
            * _excess_factor(registers, cuda.REGISTERS_PER_THREAD)
        )
        excess *= _excess_factor(registers * warps, machine.registers)
        excess *= np.maximum(1, cuda.WARP_SIZE / threads)  # MetaSchedule needs a full warp
        deep = step_depth.prod(axis=1) * (self._fragment[2] if self._fragment else 1)
        excess *= _excess_factor(deep, _DEEPEST_FRAGMENTS if cores else _DEEPEST)
        if self._loads_whole_rows:
            excess *= np.where(deep % _ROW_DEPTH, 2.0, 1.0)
        if self._stages > 1:  # TVM refuses a pipeline of one step
            excess *= np.where(steps > 1, 1.0, 2.0)
        limited_registers = np.minimum(registers, cuda.REGISTERS_PER_THREAD)
        resident = kernel_time.resident_blocks(machine, warps, limited_registers, shared_bytes)
        active = np.clip(np.ceil(blocks / machine.cores), 1, np.maximum(resident, 1))
        waves = np.ceil(blocks / (machine.cores * active))
        operations = 2.0 * shared_tile.prod(axis=1) * step_depth.prod(axis=1)
        # Times of one step of all blocks that run on one multiprocessor.
        if cores:
            operations *= prod(self._fragment or ())
            busy = np.minimum(1, active * warps * sums / kernel_time.FRAGMENTS_FILLED)
            loads = 0.25 * (1 / own_tile[:, 0] + 1 / own_tile[:, -1])
            peak = peak_gflops(machine, ["float16"])
        else:
            busy = np.minimum(1, active * threads * sums / kernel_time.RESULTS_FILLED)
            busy = busy * threads / (warps * cuda.WARP_SIZE)
            # Loads from shared memory per result of a thread.
            loaded_numbers = np.zeros(len(own_tile))
            for access in self._nest.reads:
                axes = [axis for axis in access.axes if axis < spatial]
                loaded_numbers += own_tile[:, axes].prod(axis=1)
            loads = 2.0 * loaded_numbers / own_tile.prod(axis=1)
            peak = peak_gflops(machine, ["float32"])
        computing = active * operations / (peak / machine.cores) / busy * np.maximum(1, loads) / 1e3
        moving = active * tile_bytes / (machine.caches[1].gbytes_per_sec) / 1e3
        slowest = np.maximum(computing, moving)
        at_once = active * self._stages
        exposed = np.maximum(_EXPOSED, 1 / at_once) * (computing + moving - slowest)
        latency = kernel_time.LATENCY_US * np.maximum(1, tile_bytes / (threads * _BYTES_IN_FLIGHT))
        overlapped = slowest + exposed + latency / at_once
        memory_bytes = sum(map(size_bytes, self._nest.accesses)) * self._batch
        floor = memory_bytes / machine.memory_gbytes_per_sec / 1e3
        stepping = waves * steps * overlapped * (1.0 if cores else _CUDA_CORES_SLOWER)
        total = np.maximum(stepping, floor) + machine.fork_us
        return np.asarray(total * excess**4)


class SummingSketch(GpuModel):
    """The model of a sketch that only chooses the threads per sum.

    MetaSchedule's lists of numbers of threads start with 4.
    """

    def __init__(self, sketch: Sketch, nests: Sequence[Nest], machine: Machine) -> None:
        self._sketch, self._nests, self._machine = sketch, nests, machine
        self._places = _summing_places(sketch)

    @staticmethod
    def fits(sketch: Sketch) -> bool:
        return bool(_summing_places(sketch)) and not blocks(sketch)

    def time_us(self, rows: Rows) -> Column:
        machine, us = self._machine, np.zeros(len(rows))
        reduction_nests = [nest for nest in self._nests if any(axis.reduced for axis in nest.axes)]
        for position, row in enumerate(rows):
            teams = [p.choice.labels[row[p.start]] for p in self._places]
            teams += [1] * len(reduction_nests)  # threads per sum of further reductions
            for nest, team in zip(reduction_nests, teams, strict=False):
                depth = prod(axis.extent for axis in nest.axes if axis.reduced)
                sums = prod(nest.extents) // depth
                inner = [i for i, axis in enumerate(nest.axes) if axis.reduced == (team > 1)][-1:]
                moved = 0.0
                for read in nest.reads:
                    is_dense = [read.stride(axis) for axis in inner] == [read.element_bytes]
                    neighbours = min(cuda.WARP_SIZE, team if team > 1 else sums) if is_dense else 1
                    waste = max(1.0, cuda.SECTOR / (neighbours * read.element_bytes))
                    moved += prod(read.shape) * read.element_bytes * waste
                occupancy = min(1.0, sums * min(team, depth) / (machine.cores * machine.in_flight / 2))
                moving = moved / machine.memory_gbytes_per_sec / 1e3 / occupancy
                adding = -(-depth // team) * _STEP_US + _BARRIER_US * log2(team)
                us[position] += max(moving, adding) + machine.fork_us
        return us

    def best(self, count: int) -> tuple[Rows, Column]:
        threads = self._places[0].choice.labels
        rows = np.zeros((len(threads), self._sketch.decision_count), dtype=np.int32)
        rows = _set_list_choices(self._sketch, rows, *_VARIANTS[0])
        for place in self._places:
            rows[:, place.start] = np.arange(len(threads))
        return rows, self.time_us(rows)


def stock_model(sketch: Sketch, nests: Sequence[Nest], machine: Machine) -> GpuModel | None:
    """Return the model of a sketch of MetaSchedule's; None if it has none."""
    if TiledSketch.fits(sketch):
        return TiledSketch(sketch, nests, machine)
    return SummingSketch(sketch, nests, machine) if SummingSketch.fits(sketch) else None


def _summing_places(sketch: Sketch) -> list[PlacedChoice]:
    return [
        place
        for place in placed_choices(sketch)
        if place.choice.kind is ChoiceKind.CATEGORICAL and place.choice.labels[:1] == (4,)
    ]


def _set_list_choices(sketch: Sketch, rows: Rows, unroll: int, vector: int) -> Rows:
    """Return the rows with values near those given for choices that are not tiles."""
    filled_rows = rows.copy()
    for place in placed_choices(sketch):
        choice = place.choice
        if choice.kind is ChoiceKind.CATEGORICAL:
            labels = choice.labels or choice.values
            target = {0: unroll, 1: vector}.get(labels[0], _USUAL_THREADS)
            filled_rows[:, place.start] = min(choice.values, key=lambda value: abs(labels[value] - target))
        elif choice.kind is ChoiceKind.LOCATION:
            filled_rows[:, place.start] = choice.values[0]
    return filled_rows


def loaded_bytes(read: Access, extents: Table) -> tuple[Column, Column]:
    """Return the bytes that one step loads of an operand, and by which factor whole sectors
    of memory are more. `extents` are those of the step along each axis."""
    size, span = np.full(len(extents), float(read.element_bytes)), np.ones(len(extents))
    for index, length in zip(read.indices, read.shape, strict=True):
        reach = sum((step * (extents[:, axis] - 1) for axis, step in index), np.zeros(len(extents)))
        span = np.minimum(1 + reach, length)
        size = size * span
    return size, np.maximum(1, cuda.SECTOR / (span * read.element_bytes))


def _excess_factor(value: Column, limit: float) -> Column:
    return np.asarray(np.maximum(1, value / limit))


def _tilings(extent: int, width: int, limits: Sequence[int]) -> Table:
    rows: list[tuple[int, ...]] = [(extent,)]
    for limit in limits[:0:-1]:
        rows = [
            (row[0] // factor, factor, *row[1:])
            for row in rows
            for factor in divisors(row[0])
            if factor <= limit
        ]
    return np.array([row + (1,) * (width - len(row)) for row in rows], dtype=np.int64)
