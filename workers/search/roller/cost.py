"""How long a tiled block should take: computing, and moving data between the levels of the memory."""

from math import gcd
from typing import Final

import numpy as np

from mallorn.core.values.machine import Machine
from workers.search.nest import Access
from workers.search.roller.loops import Column, Loops

FILLED: Final = 0.7  # of a cache: the rest is for what else passes through
HIDDEN: Final = 0.7  # of what is not the slowest: it runs beside that
LOADS: Final = 8.0  # while a sum is ready again
RELOAD: Final = 16.0  # steps that loading and storing a sum takes
WINDOW: Final = 64  # vector operations that a core looks ahead
UNROLLED: Final = 64  # statements that a compiler unrolls of its own accord
SPILL: Final = 8.0  # steps that a sum outside the registers takes
REUSED: Final = 3  # registers beside the sums
BODY: Final = 128  # vector operations, beyond which an unrolled body is scheduled badly
PERIOD: Final = 4096  # bytes after which places in a first cache repeat
WAYS: Final = 7  # rows that fit into one place, beside other data
CROWDED: Final = 2.2
LINE_STEPS: Final = 16
FILL: Final = 4.0  # times reading it, for reading, choosing and writing
WIDE: Final = 0.05  # steps for each doubling of a vector of two registers: they are loaded again
LOOP: Final = 0.5  # steps that going round a loop takes
BROADCAST: Final = 1.25  # loads that one number for a whole vector takes
SPLIT: Final = 1.3  # a vector of no power of two, which is loaded and stored in parts


def block_us(working: Column, moving: Column, loops: Loops, machine: Machine) -> Column:
    """All of a block on all cores, from what each part of it takes on one."""
    slowest = np.maximum(working, moving.max(axis=0))
    total = slowest + (1 - HIDDEN) * (working + moving.sum(axis=0) - slowest)
    return np.asarray(total * uneven(loops, machine) / machine.cores + machine.fork_us)


def uneven(loops: Loops, machine: Machine) -> Column:
    """How much longer the core with most chunks takes than all of them evenly."""
    chunks = loops.across(0)
    return np.asarray(np.ceil(chunks / machine.cores) * machine.cores / chunks)


def computing_us(loops: Loops, machine: Machine, unroll: float | Column) -> Column:
    """The instructions of all of the block on one core."""
    vectors = registers_of(loops.width, machine.lanes)
    rows, again, depth = loops.across(3, loops.spatial - 1), loops.across(2), loops.deep(1)
    sums = rows * vectors
    body = rows * again * depth
    whole = (body <= np.maximum(unroll, UNROLLED)) & (sums * again <= machine.registers)
    held = np.where(whole, np.clip(WINDOW / depth, sums, sums * again), sums)
    waits = machine.in_flight / held
    loaded = sum((_loads(loops, read, vectors) for read in loops.nest.reads), np.zeros(loops.count))
    # A sum is ready after four steps: a core that needs eight at once computes two a step, and loads as many.
    loads = loaded / sums * machine.in_flight / LOADS
    spills = SPILL * np.maximum(0, sums + vectors + 1 - machine.registers - REUSED) / sums
    reloads = np.where((again == 1) | whole, 0, RELOAD / depth)
    bloated = 0.1 * np.maximum(0, np.log2(np.where(body <= unroll, body, 1) * vectors / BODY))
    wide = WIDE * np.maximum(0, np.log2(vectors) - 1)
    steps = np.where(rows * depth <= np.maximum(unroll, LINE_STEPS), depth, 1) * sums
    cost = np.maximum(np.maximum(1, waits), loads) + spills + reloads + bloated + wide + LOOP / steps
    rate = machine.core_gflops / (2 * machine.lanes) * 1e3  # vector operations in a microsecond
    return np.asarray(loops.outside[-1] / loops.width * vectors / rate * cost * _crowded(loops))


def _crowded(loops: Loops) -> Column:
    """How much slower rows are read that share their places in the first cache with each other."""
    slower = np.ones(loops.count)
    for read in loops.nest.reads:
        for axis in range(loops.spatial - 1):
            if stride := read.stride(axis):
                period = PERIOD // gcd(stride, PERIOD)
                rows = loops.factor(axis, 3) * np.where(loops.deep(1) < LINE_STEPS, loops.factor(axis, 2), 1)
                slower = np.maximum(slower, np.minimum(rows / (WAYS * period), CROWDED))
    return slower


def registers_of(width: Column, lanes: int) -> Column:
    """What a vector of some width occupies: compilers make powers of two of it."""
    even = np.exp2(np.ceil(np.log2(width)))
    vectors = np.maximum(1, even / lanes)
    return np.where(even == width, vectors, vectors * SPLIT)


def _loads(loops: Loops, read: Access, vectors: Column) -> Column:
    """Of a buffer, for one step of the innermost tile."""
    last = loops.spatial - 1
    count = np.ones(loops.count)
    for axis in range(last):
        if axis in read.axes:
            count = count * loops.factor(axis, 3)
    if last not in read.axes:
        return BROADCAST * count
    beside = read.relaid or (last, 1) in read.indices[-1]
    return np.asarray(count * (vectors if beside else loops.width))


def moving_us(loops: Loops, machine: Machine) -> Column:
    """What it takes on one core to fill each cache from what is behind it, a row a cache."""
    held, moved = np.zeros((2, len(loops.order) + 1, loops.count))
    for access in loops.nest.accesses:
        size = np.array([loops.bytes_of(access, cut) for cut in range(len(held))])
        held += size
        moved += (2 if access is loops.nest.write else 1) * size * np.array(loops.fetches(access))
    behind = [*(cache.gbytes_per_sec for cache in machine.caches[1:]), _memory(machine)]
    fits = [np.argmax(held <= cache.bytes * FILLED, axis=0) for cache in machine.caches]
    filled = [np.take_along_axis(moved, cut[None], axis=0)[0] for cut in fits]
    return np.array([size / rate / 1e3 for size, rate in zip(filled, behind, strict=True)])


def result_us(loops: Loops, machine: Machine, home: int | None) -> Column:
    """What it takes on one core to read the result again, for what follows, from where it lies by then."""
    write, cut = loops.nest.write, loops.cut(home or 0)
    size = loops.bytes_of(write, cut)
    rate = np.full(loops.count, _memory(machine))
    for cache in reversed(machine.caches):
        rate = np.where(size <= cache.bytes * FILLED, cache.gbytes_per_sec, rate)
    return np.asarray(size * loops.outside[cut] / rate / 1e3)


def feeding_us(loops: Loops, machine: Machine, location: int) -> Column:
    """What it takes to make the buffers that other blocks fill, in a loop or, at -1, beforehand."""
    rate = (machine.caches[-1] if location < 0 else machine.caches[0]).gbytes_per_sec
    cut = loops.cut(max(0, location + 1))
    runs = loops.outside[cut]
    size = sum((loops.bytes_of(read, cut) for read in loops.nest.reads if read.made), np.zeros(loops.count))
    return np.asarray(FILL * size * runs / rate / 1e3 / machine.cores + (location < 0) * machine.fork_us)


def _memory(machine: Machine) -> float:
    """What one core reads of the memory while all do."""
    return machine.memory_gbytes_per_sec / machine.cores
