"""Estimate the time of a tiled block: computing, and moving data between levels of memory."""

from math import gcd
from typing import Final

import numpy as np

from costmodels.base import Column
from mallorn.core.values.machine import Machine
from searchers.loop_nest import FLOAT_BYTES
from searchers.roller.tiled_loops import LINE_BYTES, Loops
from searchers.roller.unrolled_body import BESIDE, Body

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
    """Return a block's time on all cores, from the times of its parts on one core."""
    slowest = np.maximum(working, moving.max(axis=0))
    total = slowest + (1 - HIDDEN) * (working + moving.sum(axis=0) - slowest)
    return np.asarray(total * uneven(loops, machine) / machine.cores + machine.fork_us)


def uneven(loops: Loops, machine: Machine) -> Column:
    """Return the factor of load imbalance: time of the busiest core over an even share."""
    chunks = loops.across(0)
    return np.asarray(np.ceil(chunks / machine.cores) * machine.cores / chunks)


def computing_us(loops: Loops, machine: Machine, unroll: float) -> Column:
    """Return the time of the block's instructions on one core."""
    body = Body(loops, machine, unroll)
    tile = loops.across(3) / loops.width * body.vectors  # accumulators of the innermost tile
    # If a body has several tiles, one follows the other after deep(1) steps.
    in_progress = np.clip(WINDOW / loops.deep(1), tile, body.sums)
    waits = machine.in_flight / in_progress
    # A tile that does not fit into registers is spilled at every step; several tiles of a body
    # are spilled when one follows the other.
    spills = SPILL * _over(tile, body, machine) + np.where(
        body.sums > tile, RELOAD / loops.deep(1) * _over(body.sums, body, machine), 0
    )
    spills += AGAIN * body.spilled
    is_complete = (body.steps == loops.depth) & (body.sums >= tile * loops.across(2))
    reloads = np.where(is_complete, 0, RELOAD / body.steps)
    bloated = BLOATED * np.maximum(0, np.log2(body.operations / BODY))
    # In bodies without loops, compilers build vectors of broadcast scalars one element at a
    # time.
    bloated += np.where(body.loopless & body.spreads & (body.operations > BODY), REBUILT, 0)
    # Likewise if a row has several vectors, which are tiles of their own.
    bloated += np.where(body.spreads & (loops.factor(loops.spatial - 1, 2) > 1), APART, 0)
    bloated += np.where(body.in_memory, MEMORY, 0)
    wide = WIDE * np.maximum(0, np.log2(body.vectors) - 1)
    cost = (
        np.maximum(np.maximum(1, waits), body.loading)
        + spills
        + reloads
        + bloated
        + wide
        + LOOP / body.operations
    )
    rate = machine.core_gflops / (2 * machine.lanes) * 1e3  # vector operations per microsecond
    operations = loops.outside[-1] / loops.width * body.vectors
    return np.asarray(operations * cost / rate * _crowded(loops, machine))


def _over(sums: Column, body: Body, machine: Machine) -> Column:
    """Return the share of the accumulators that do not fit into registers."""
    return np.asarray(np.maximum(0, sums + body.vectors + 1 - machine.registers - BESIDE) / sums)


def _crowded(loops: Loops, machine: Machine) -> Column:
    """Return the slowdown of reading rows that map to the same sets of the first cache."""
    slower = np.ones(loops.count)
    ways = max(1, machine.caches[0].bytes // PERIOD - 1)  # one for other data
    for read in loops.nest.reads:
        for axis in range(loops.spatial - 1):
            if stride := read.stride(axis):
                period = PERIOD // gcd(stride, PERIOD)
                rows = loops.factor(axis, 3) * np.where(loops.deep(1) < LINE_STEPS, loops.factor(axis, 2), 1)
                slower = np.maximum(slower, np.minimum(rows / (ways * period), CROWDED))
    return slower


def moving_us(loops: Loops, machine: Machine) -> Column:
    """Return one core's time to fill each cache from the next level (caches x candidates).

    Data that fit entirely into the last cache are already there: earlier blocks wrote or read
    them.
    """
    footprint, moved = np.zeros((2, len(loops.order) + 1, loops.count))
    for access in loops.nest.accesses:
        size = np.array([loops.bytes_of(access, cut) for cut in range(len(footprint))])
        footprint += size
        moved += (2 if access is loops.nest.write else 1) * size * np.array(loops.fetches(access))
    next_rates = [*(cache.gbytes_per_sec for cache in machine.caches[1:]), _memory(machine)]
    fits = [np.argmax(footprint <= cache.bytes * FILLED, axis=0) for cache in machine.caches]
    traffic = [np.take_along_axis(moved, cut[None], axis=0)[0] for cut in fits]
    traffic[-1] = np.where(fits[-1] == 0, 0, traffic[-1])
    return np.array([size / rate / 1e3 for size, rate in zip(traffic, next_rates, strict=True)])


def result_us(loops: Loops, machine: Machine, home: int | None, across: bool = False) -> Column:
    """Return one core's time for the consumer to read the result from the cache that holds it.

    A separate pass (no `home`) that goes `across` the rows reads a vector for each element.
    """
    write, cut = loops.nest.write, loops.cut(home or 0)
    size = loops.bytes_of(write, cut)
    is_near = size <= machine.caches[0].bytes * FILLED
    times = np.where(is_near, 1.0, FILL) if home else FILL * (machine.lanes if across else 1)
    return np.asarray(times * size * loops.outside[cut] / _reading(size, machine) / 1e3)


def feeding_us(loops: Loops, machine: Machine, location: int) -> Column:
    """Return the time for computing inputs made by other blocks: in a loop, or first (-1)."""
    cut = loops.cut(max(0, location + 1))
    runs = loops.outside[cut]
    size = sum((loops.bytes_of(read, cut) for read in loops.nest.reads if read.made), np.zeros(loops.count))
    rate = _reading(size, machine)
    return np.asarray(FILL * size * runs / rate / 1e3 / machine.cores + (location < 0) * machine.fork_us)


def _reading(size: Column, machine: Machine) -> Column:
    """Return one core's read bandwidth in GB/s for data of a size."""
    rate = np.full(len(size), _memory(machine))
    for cache in reversed(machine.caches):
        rate = np.where(size <= cache.bytes * FILLED, cache.gbytes_per_sec, rate)
    return rate


def _memory(machine: Machine) -> float:
    """Return one core's share of the memory bandwidth, in GB/s."""
    return machine.memory_gbytes_per_sec / machine.cores
