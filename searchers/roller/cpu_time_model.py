"""An analytic time model of a tiled block on a CPU, for many decision vectors at once."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from math import gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.loop_nest import FLOAT_BYTES, Access, Nest
from mallorn.searchers.tile_factorizations import Rows

LINE_BYTES = 64

# Outermost first: levels of the tiles of spatial axes, and of reductions.
_ORDER = ((False, 0), (False, 1), (True, 0), (False, 2), (True, 1), (False, 3))


class Loops:
    """The loops of many candidates of one block, outermost first; cut p means everything
    inside the first p loops. A row has 4 factors per spatial axis, then 2 per reduction."""

    def __init__(self, nest: Nest, rows: Rows) -> None:
        self.nest = nest
        self.spatial = sum(not axis.reduced for axis in nest.axes)
        self.axes = len(nest.axes)
        self.count = len(rows)
        self._rows = rows.astype(np.float64)

    def factor(self, axis: int, level: int) -> Column:
        start = 4 * min(axis, self.spatial) + 2 * max(0, axis - self.spatial)
        return np.asarray(self._rows[:, start + level])

    def spatial_product(self, level: int) -> Column:
        return self._product(range(self.spatial), level)

    def reduction_product(self, level: int) -> Column:
        return self._product(range(self.spatial, self.axes), level)

    @property
    def vector_axis_factor(self) -> Column:
        """The innermost factor of the last spatial axis, which is vectorised."""
        return self.factor(self.spatial - 1, 3)

    @cached_property
    def nontrivial_loops(self) -> list[tuple[int, int]]:
        """Axis and level of each loop whose factor is above 1 for any candidate."""
        return [loop for loop in self.all_loops if (self.factor(*loop) > 1).any()]

    def cut_after(self, loops: int) -> int:
        """Return the cut after the first `loops` of `levels`, without loops of extent 1."""
        return sum(loop in self.nontrivial_loops for loop in self.all_loops[:loops])

    @cached_property
    def all_loops(self) -> list[tuple[int, int]]:
        """Axis and level of every loop, outermost first."""
        kinds = {False: range(self.spatial), True: range(self.spatial, self.axes)}
        return [(axis, level) for is_reduction, level in _ORDER for axis in kinds[is_reduction]]

    @cached_property
    def extents(self) -> list[Column]:
        return [self.factor(axis, level) for axis, level in self.nontrivial_loops]

    @cached_property
    def outer_iterations_by_cut(self) -> list[Column]:
        """Number of times that the loops inside cut p run, for each p."""
        return list(accumulate(self.extents, np.multiply, initial=np.ones(self.count)))

    @cached_property
    def inner_extents_by_cut(self) -> list[list[Column]]:
        """The extent of each axis inside cut p, for each p."""
        sizes = [[np.ones(self.count) for _ in range(self.axes)]]
        for (axis, _), extent in zip(reversed(self.nontrivial_loops), reversed(self.extents), strict=True):
            extents = list(sizes[-1])
            extents[axis] = extents[axis] * extent
            sizes.append(extents)
        return sizes[::-1]

    def bytes_of(self, access: Access, cut: int) -> Column:
        """Return the bytes of a buffer accessed inside a cut, in full cache lines."""
        size = np.full(self.count, float(access.element_bytes))
        for index, length in zip(access.indices[:-1], access.shape[:-1], strict=True):
            size = size * np.minimum(self._span(index, cut), length)
        if not access.shape:
            return size
        line = 1 if access.relaid else LINE_BYTES / access.element_bytes
        lines = np.ceil(np.minimum(self._span(access.indices[-1], cut), access.shape[-1]) / line)
        return np.asarray(size * lines * line)

    def fetches(self, access: Access) -> list[Column]:
        """Return how often each cut's data are fetched; loops that do not index the
        buffer reuse them."""
        times = [np.ones(self.count)]
        for position, (axis, _) in enumerate(self.nontrivial_loops):
            is_refetched = (self.extents[position] > 1) & (axis in access.axes)
            times.append(np.where(is_refetched, self.outer_iterations_by_cut[position + 1], times[-1]))
        return times

    def _span(self, index: Sequence[tuple[int, int]], cut: int) -> Column:
        extents = self.inner_extents_by_cut[cut]
        return np.asarray(1 + sum((step * (extents[axis] - 1) for axis, step in index), np.zeros(self.count)))

    def _product(self, axes: Sequence[int], level: int) -> Column:
        points = np.ones(self.count)
        for axis in axes:
            points = points * self.factor(axis, level)
        return points


UNROLLED: Final = 64  # vector operations that compilers unroll by default
LOADED: Final = 1.2  # time of vector loads during computation, relative to loads only
NUMBERS: Final = 8.0  # scalars that can be broadcast during the latency of an accumulator
PIECED: Final = 2.0  # cost factor of vectors whose width is not a power of two
BESIDE: Final = 3  # registers not used for accumulators


class Body:
    """Each candidate's unrolled inner loops (body), which compute vectors of a tile."""

    def __init__(self, loops: Loops, machine: Machine, unroll: float) -> None:
        self.loops, self._machine = loops, machine
        self.vectors = register_cost(loops.vector_axis_factor, machine.lanes)
        self._statements = [
            np.prod(loops.inner_extents_by_cut[cut], axis=0) / loops.vector_axis_factor
            for cut in range(len(loops.nontrivial_loops) + 1)
        ]
        budget = np.maximum(unroll, UNROLLED / self.vectors)
        self._cut: Indices = np.sum([count > budget for count in self._statements], axis=0)

    @cached_property
    def operation_count(self) -> Column:
        """Number of vector multiply-adds in the body."""
        return np.asarray(
            np.take_along_axis(np.array(self._statements), self._cut[None], axis=0)[0] * self.vectors
        )

    @cached_property
    def accumulator_count(self) -> Column:
        points = np.ones(self.loops.count)
        for position, (axis, _) in enumerate(self.loops.nontrivial_loops):
            if axis < self.loops.spatial:
                points = points * np.where(position >= self._cut, self.loops.extents[position], 1)
        return points / self.loops.vector_axis_factor * self.vectors

    @property
    def has_broadcasts(self) -> bool:
        return any(self.loops.spatial - 1 not in read.axes for read in self.loops.nest.reads)

    @property
    def has_sums_in_memory(self) -> NDArray[np.bool_]:
        """Whether LLVM keeps sums in memory: long vectors of no power-of-two width."""
        width = self.loops.vector_axis_factor
        return np.asarray((width > self._machine.lanes) & (np.exp2(np.ceil(np.log2(width))) != width))

    @cached_property
    def is_fully_unrolled(self) -> NDArray[np.bool_]:
        reductions = [
            loop for loop, (axis, _) in enumerate(self.loops.nontrivial_loops) if axis >= self.loops.spatial
        ]
        remaining = [np.where(loop < self._cut, self.loops.extents[loop], 1) for loop in reductions]
        return np.asarray(np.all(np.array([*remaining, np.ones(self.loops.count)]) == 1, axis=0))

    @cached_property
    def steps_per_accumulator_load(self) -> Column:
        """Number of reduction steps between loading and storing an accumulator."""
        steps, stays_loaded = np.ones(self.loops.count), np.ones(self.loops.count, dtype=np.bool_)
        for position in reversed(range(len(self.loops.nontrivial_loops))):
            extent, axis = self.loops.extents[position], self.loops.nontrivial_loops[position][0]
            if axis < self.loops.spatial:
                stays_loaded &= (position >= self._cut) | (extent == 1)
            else:
                steps = steps * np.where(stays_loaded, extent, 1)
        return steps

    @property
    def load_cost(self) -> Column:
        """Time of loads per operation, in vector multiply-adds, with reuse of operands."""
        return self._traffic[0]

    @property
    def spilled_operand_count(self) -> Column:
        """Number of reused operands per operation that do not fit into registers."""
        return self._traffic[1]

    @cached_property
    def _traffic(self) -> tuple[Column, Column]:
        loops, reads = self.loops, self.loops.nest.reads
        cut = loops.cut_after(len(loops.all_loops) - loops.spatial)
        inner = np.array([self._vectors_read(read, cut) for read in reads])
        # Steps of a load. Per step 2 scalars are broadcast; a sum takes 4 steps.
        machine = self._machine
        vector_rate = machine.core_gflops / machine.caches[0].gbytes_per_sec
        prices = np.array(
            [
                LOADED * max(read.element_bytes, FLOAT_BYTES) / 2 * vector_rate
                if loops.spatial - 1 in read.axes
                else machine.in_flight / NUMBERS
                for read in reads
            ]
        )
        loads, spilled = prices @ inner, np.zeros(loops.count)
        free = self._machine.registers + BESIDE - self.accumulator_count
        while cut and (is_looped := cut > self._cut).any():
            cut -= 1
            outer = np.array([self._vectors_read(read, cut) for read in reads])
            held_operands = np.where(outer < loops.extents[cut] * inner, inner, 0).sum(axis=0)
            next_spilled = spilled + np.clip(held_operands - free, 0, held_operands)
            loads = np.where(is_looped, prices @ outer, loops.extents[cut] * loads)
            spilled = loops.extents[cut] * np.where(is_looped, next_spilled, spilled)
            inner = outer
        operations = self._statements[cut] * self.vectors
        return loads / operations, spilled / operations

    def _vectors_read(self, read: Access, cut: int) -> Column:
        """Return the vectors read of a buffer, or the scalars if they are broadcast."""
        last = self.loops.spatial - 1
        count = np.ones(self.loops.count)
        for index in read.indices:
            # The distinct indices along one dimension; those of a vector count once.
            extents = {
                axis: self.loops.inner_extents_by_cut[cut][axis]
                / (self.loops.vector_axis_factor if axis == last else 1)
                for axis, _ in index
            }
            distinct = np.prod(np.array([*extents.values(), np.ones(self.loops.count)]), axis=0)
            if last not in extents:
                steps = (step * (extents[axis] - 1) for axis, step in index)
                distinct = np.minimum(distinct, 1 + sum(steps, np.zeros(self.loops.count)))
            count = count * distinct
        if last not in read.axes:
            return count
        is_contiguous = read.relaid or (last, 1) in read.indices[-1]
        return np.asarray(count * (self.vectors if is_contiguous else self.loops.vector_axis_factor))


def register_cost(width: Column, lanes: int) -> Column:
    """Return the cost of a vector in registers; widths are rounded up to powers of two."""
    even = np.exp2(np.ceil(np.log2(width)))
    return np.maximum(1, even / lanes) * np.where(even == width, 1, PIECED)


# A "step" is the time of one vector multiply-add. test_roller_constants.py tries half and
# twice each constant, and lists those that matter.
FILLED: Final = 0.5  # usable share of a cache; the rest is for other data
HIDDEN: Final = 0.7  # overlapped share of all times except the largest
RELOAD: Final = 8.0  # steps for loading and storing an accumulator
WINDOW: Final = 32  # vector operations in a core's out-of-order window
SPILL: Final = 8.0  # steps for using a spilled accumulator
AGAIN: Final = 0.5  # steps for storing and loading spilled operands
BODY: Final = 96  # vector operations; compilers schedule longer unrolled bodies badly
BLOATED: Final = 0.1  # steps per doubling of a body longer than BODY
REBUILT: Final = 2.0
APART: Final = 1.0
PERIOD: Final = 4096  # bytes after which sets of a first cache repeat: page offsets index it
CROWDED: Final = 2.2
LINE_STEPS: Final = LINE_BYTES // FLOAT_BYTES
FILL: Final = 4.0  # time of reading, selecting and writing, relative to only reading
WIDE: Final = 0.05  # steps per doubling of a vector beyond two registers, for reloading
MEMORY: Final = 8.0  # steps for an accumulator that LLVM keeps in memory
LOOP: Final = 0.5  # steps per loop iteration


def block_us(working: Column, moving: Column, loops: Loops, machine: Machine) -> Column:
    """Return a block's time on all cores. `working` and `moving` are one core's times of
    computing and, one row per kind, of moving data."""
    slowest = np.maximum(working, moving.max(axis=0))
    total = slowest + (1 - HIDDEN) * (working + moving.sum(axis=0) - slowest)
    return np.asarray(total * load_imbalance(loops, machine) / machine.cores + machine.fork_us)


def load_imbalance(loops: Loops, machine: Machine) -> Column:
    """Return the load imbalance: the time of the busiest core over an even share."""
    chunks = loops.spatial_product(0)
    return np.asarray(np.ceil(chunks / machine.cores) * machine.cores / chunks)


def computing_us(loops: Loops, machine: Machine, unroll: float) -> Column:
    """Return the time of the block's instructions on one core."""
    body = Body(loops, machine, unroll)
    # Accumulators of the innermost tile.
    tile = loops.spatial_product(3) / loops.vector_axis_factor * body.vectors
    # If a body has several tiles, one follows the other after deep(1) steps.
    in_progress = np.clip(WINDOW / loops.reduction_product(1), tile, body.accumulator_count)
    waits = machine.in_flight / in_progress
    # A tile that does not fit into registers is spilled at every step; several tiles of a
    # body are spilled when one follows the other.
    spills = SPILL * _spilled_accumulator_share(tile, body, machine)
    body_share = _spilled_accumulator_share(body.accumulator_count, body, machine)
    body_spills = RELOAD / loops.reduction_product(1) * body_share
    spills = spills + np.where(body.accumulator_count > tile, body_spills, 0)
    spills += AGAIN * body.spilled_operand_count
    all_steps = loops.reduction_product(0) * loops.reduction_product(1)
    is_complete = (body.steps_per_accumulator_load == all_steps) & (
        body.accumulator_count >= tile * loops.spatial_product(2)
    )
    reloads = np.where(is_complete, 0, RELOAD / body.steps_per_accumulator_load)
    bloated = BLOATED * np.maximum(0, np.log2(body.operation_count / BODY))
    # Without loops, compilers build vectors of broadcast scalars element by element.
    bloated += np.where(
        body.is_fully_unrolled & body.has_broadcasts & (body.operation_count > BODY), REBUILT, 0
    )
    # Likewise if a row has several vectors, which are tiles of their own.
    bloated += np.where(body.has_broadcasts & (loops.factor(loops.spatial - 1, 2) > 1), APART, 0)
    bloated += np.where(body.has_sums_in_memory, MEMORY, 0)
    cost = (
        np.maximum(np.maximum(1, waits), body.load_cost)
        + spills
        + reloads
        + bloated
        + WIDE * np.maximum(0, np.log2(body.vectors) - 1)
        + LOOP / body.operation_count
    )
    rate = machine.core_gflops / (2 * machine.lanes) * 1e3  # vector operations per microsecond
    operations = loops.outer_iterations_by_cut[-1] / loops.vector_axis_factor * body.vectors
    # The slowdown of reading rows that map to the same sets of the first cache.
    slower = np.ones(loops.count)
    ways = max(1, machine.caches[0].bytes // PERIOD - 1)  # one for other data
    for read in loops.nest.reads:
        for axis in range(loops.spatial - 1):
            if stride := read.stride(axis):
                period = PERIOD // gcd(stride, PERIOD)
                rows = loops.factor(axis, 3) * np.where(
                    loops.reduction_product(1) < LINE_STEPS, loops.factor(axis, 2), 1
                )
                slower = np.maximum(slower, np.minimum(rows / (ways * period), CROWDED))
    return np.asarray(operations * cost / rate * slower)


def _spilled_accumulator_share(sums: Column, body: Body, machine: Machine) -> Column:
    return np.asarray(np.maximum(0, sums + body.vectors + 1 - machine.registers - BESIDE) / sums)


def moving_us(loops: Loops, machine: Machine) -> Column:
    """Return one core's time to fill each cache from the next level (caches x candidates).
    Data that fit entirely into the last cache are there already, from earlier blocks."""
    footprint, moved = np.zeros((2, len(loops.nontrivial_loops) + 1, loops.count))
    for access in loops.nest.accesses:
        size = np.array([loops.bytes_of(access, cut) for cut in range(len(footprint))])
        footprint += size
        moved += (2 if access is loops.nest.write else 1) * size * np.array(loops.fetches(access))
    next_rates = [*(cache.gbytes_per_sec for cache in machine.caches[1:]), _memory_gbytes_per_core(machine)]
    fits = [np.argmax(footprint <= cache.bytes * FILLED, axis=0) for cache in machine.caches]
    traffic = [np.take_along_axis(moved, cut[None], axis=0)[0] for cut in fits]
    traffic[-1] = np.where(fits[-1] == 0, 0, traffic[-1])
    return np.array([size / rate / 1e3 for size, rate in zip(traffic, next_rates, strict=True)])


def result_us(loops: Loops, machine: Machine, home: int | None, across: bool = False) -> Column:
    """Return one core's time for the consumer to read the block's result from the cache
    that holds it. `home` is the number of loops around a fused consumer. If it is None, a
    separate pass reads the result; if `across` rows, it reads a vector for each element."""
    write, cut = loops.nest.write, loops.cut_after(home or 0)
    size = loops.bytes_of(write, cut)
    is_near = size <= machine.caches[0].bytes * FILLED
    times = np.where(is_near, 1.0, FILL) if home else FILL * (machine.lanes if across else 1)
    return np.asarray(
        times * size * loops.outer_iterations_by_cut[cut] / _read_gbytes_per_sec(size, machine) / 1e3
    )


def input_computing_us(loops: Loops, machine: Machine, location: int) -> Column:
    """Return the time of computing inputs in the loop at `location`, or beforehand (-1)."""
    cut = loops.cut_after(max(0, location + 1))
    runs = loops.outer_iterations_by_cut[cut]
    size = sum((loops.bytes_of(read, cut) for read in loops.nest.reads if read.made), np.zeros(loops.count))
    rate = _read_gbytes_per_sec(size, machine)
    return np.asarray(FILL * size * runs / rate / 1e3 / machine.cores + (location < 0) * machine.fork_us)


def _read_gbytes_per_sec(size: Column, machine: Machine) -> Column:
    rate = np.full(len(size), _memory_gbytes_per_core(machine))
    for cache in reversed(machine.caches):
        rate = np.where(size <= cache.bytes * FILLED, cache.gbytes_per_sec, rate)
    return rate


def _memory_gbytes_per_core(machine: Machine) -> float:
    return machine.memory_gbytes_per_sec / machine.cores
