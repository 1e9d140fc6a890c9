"""How long a tiled block should take: computing, and moving data between the levels of the memory."""

from math import gcd
from typing import Final

import numpy as np

from costmodels.base import Column
from mallorn.core.values.machine import Machine
from searchers.loop_nest import FLOAT_BYTES
from searchers.roller.tiled_loops import LINE_BYTES, Loops
from searchers.roller.unrolled_body import BESIDE, Body

# test_roller_constants.py tries half and twice of each, and names those that matter.
FILLED: Final = 0.5  # of a cache: the rest is for what else passes through
HIDDEN: Final = 0.7  # of what is not the slowest: it runs beside that
RELOAD: Final = 8.0  # steps that loading and storing a sum takes
WINDOW: Final = 32  # vector operations that a core looks ahead
SPILL: Final = 8.0  # steps that a sum outside the registers takes
AGAIN: Final = 0.5  # steps that storing and loading takes of what is used again
BODY: Final = 96  # vector operations, beyond which an unrolled body is scheduled badly
BLOATED: Final = 0.1  # steps for each doubling of such a body
REBUILT: Final = 2.0
APART: Final = 1.0
PERIOD: Final = 4096  # bytes after which places in a first cache repeat: it is found by the place in a page
CROWDED: Final = 2.2
LINE_STEPS: Final = LINE_BYTES // FLOAT_BYTES
FILL: Final = 4.0  # times reading it, for reading, choosing and writing
WIDE: Final = 0.05  # steps for each doubling of a vector of two registers: they are loaded again
MEMORY: Final = 8.0  # steps that a sum takes which LLVM keeps in memory
LOOP: Final = 0.5  # steps that going round a loop takes


def block_us(working: Column, moving: Column, loops: Loops, machine: Machine) -> Column:
    """All of a block on all cores, from what each part of it takes on one."""
    slowest = np.maximum(working, moving.max(axis=0))
    total = slowest + (1 - HIDDEN) * (working + moving.sum(axis=0) - slowest)
    return np.asarray(total * uneven(loops, machine) / machine.cores + machine.fork_us)


def uneven(loops: Loops, machine: Machine) -> Column:
    """How much longer the core with most chunks takes than all of them evenly."""
    chunks = loops.across(0)
    return np.asarray(np.ceil(chunks / machine.cores) * machine.cores / chunks)


def computing_us(loops: Loops, machine: Machine, unroll: float) -> Column:
    """The instructions of all of the block on one core."""
    body = Body(loops, machine, unroll)
    tile = loops.across(3) / loops.width * body.vectors  # sums of the innermost tile
    # Tiles that are side by side in a body follow each other after so many steps.
    held = np.clip(WINDOW / loops.deep(1), tile, body.sums)
    waits = machine.in_flight / held
    # A tile that does not fit is spilled at every step, tiles side by side when one follows the other.
    spills = SPILL * _over(tile, body, machine) + np.where(
        body.sums > tile, RELOAD / loops.deep(1) * _over(body.sums, body, machine), 0
    )
    spills += AGAIN * body.spilled
    whole = (body.steps == loops.depth) & (body.sums >= tile * loops.across(2))
    reloads = np.where(whole, 0, RELOAD / body.steps)
    bloated = BLOATED * np.maximum(0, np.log2(body.operations / BODY))
    # Where numbers are spread and no loop is left, compilers make vectors of the numbers, one by one.
    bloated += np.where(body.loopless & body.spreads & (body.operations > BODY), REBUILT, 0)
    # Vectors of a row that are tiles of their own, too.
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
    rate = machine.core_gflops / (2 * machine.lanes) * 1e3  # vector operations in a microsecond
    operations = loops.outside[-1] / loops.width * body.vectors
    return np.asarray(operations * cost / rate * _crowded(loops, machine))


def _over(sums: Column, body: Body, machine: Machine) -> Column:
    """The part of the sums that there are no registers for."""
    return np.asarray(np.maximum(0, sums + body.vectors + 1 - machine.registers - BESIDE) / sums)


def _crowded(loops: Loops, machine: Machine) -> Column:
    """How much slower rows are read that share their places in the first cache with each other."""
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
    """What it takes on one core to fill each cache from what is behind it, a row a cache.

    What fits into the last cache as a whole is there already: others have just written or read it.
    """
    held, moved = np.zeros((2, len(loops.order) + 1, loops.count))
    for access in loops.nest.accesses:
        size = np.array([loops.bytes_of(access, cut) for cut in range(len(held))])
        held += size
        moved += (2 if access is loops.nest.write else 1) * size * np.array(loops.fetches(access))
    behind = [*(cache.gbytes_per_sec for cache in machine.caches[1:]), _memory(machine)]
    fits = [np.argmax(held <= cache.bytes * FILLED, axis=0) for cache in machine.caches]
    filled = [np.take_along_axis(moved, cut[None], axis=0)[0] for cut in fits]
    filled[-1] = np.where(fits[-1] == 0, 0, filled[-1])
    return np.array([size / rate / 1e3 for size, rate in zip(filled, behind, strict=True)])


def result_us(loops: Loops, machine: Machine, home: int | None, across: bool = False) -> Column:
    """What it takes on one core to read the result again, for what follows, from where it lies by then.

    A pass of its own that goes `across` the rows of the result reads a vector for each number.
    """
    write, cut = loops.nest.write, loops.cut(home or 0)
    size = loops.bytes_of(write, cut)
    near = size <= machine.caches[0].bytes * FILLED
    times = np.where(near, 1.0, FILL) if home else FILL * (machine.lanes if across else 1)
    return np.asarray(times * size * loops.outside[cut] / _reading(size, machine) / 1e3)


def feeding_us(loops: Loops, machine: Machine, location: int) -> Column:
    """What it takes to make the buffers that other blocks fill, in a loop or, at -1, beforehand."""
    cut = loops.cut(max(0, location + 1))
    runs = loops.outside[cut]
    size = sum((loops.bytes_of(read, cut) for read in loops.nest.reads if read.made), np.zeros(loops.count))
    rate = _reading(size, machine)
    return np.asarray(FILL * size * runs / rate / 1e3 / machine.cores + (location < 0) * machine.fork_us)


def _reading(size: Column, machine: Machine) -> Column:
    """What one core reads of data of a size."""
    rate = np.full(len(size), _memory(machine))
    for cache in reversed(machine.caches):
        rate = np.where(size <= cache.bytes * FILLED, cache.gbytes_per_sec, rate)
    return rate


def _memory(machine: Machine) -> float:
    """What one core reads of the memory while all do."""
    return machine.memory_gbytes_per_sec / machine.cores
