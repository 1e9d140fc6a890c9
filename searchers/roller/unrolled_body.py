"""The innermost loops of a tiled block that a compiler writes out, as one straight piece of code."""

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Column, Indices
from mallorn.core.values.machine import Machine
from searchers.loop_nest import FLOAT_BYTES, Access, Index
from searchers.roller.tiled_loops import Loops

UNROLLED: Final = 64  # operations of vectors that a compiler unrolls of its own accord
LOADED: Final = 1.2  # times what reading vectors alone takes, when it is beside computing
NUMBERS: Final = 8.0  # that are spread over vectors while a sum is ready again
PIECED: Final = 2.0  # a vector of no power of two: it is put together of parts
BESIDE: Final = 3  # registers beside those of the sums


class Body:
    """Of each candidate the loops that are unrolled, outermost first; a statement is one vector of a tile."""

    def __init__(self, loops: Loops, machine: Machine, unroll: float) -> None:
        self.loops = loops
        self._machine = machine
        self.vectors = registers_of(loops.width, machine.lanes)
        self._statements = [loops.points(cut) / loops.width for cut in range(len(loops.order) + 1)]
        itself = UNROLLED / self.vectors
        budget = np.maximum(unroll, itself)
        self._cut: Indices = np.sum([count > budget for count in self._statements], axis=0)

    @cached_property
    def operations(self) -> Column:
        """Products and sums of vectors."""
        return np.asarray(
            np.take_along_axis(np.array(self._statements), self._cut[None], axis=0)[0] * self.vectors
        )

    @cached_property
    def sums(self) -> Column:
        """Vectors that are summed side by side."""
        points = np.ones(self.loops.count)
        for at, (axis, _) in enumerate(self.loops.order):
            if axis < self.loops.spatial:
                points = points * np.where(at >= self._cut, self.loops.extents[at], 1)
        return points / self.loops.width * self.vectors

    @property
    def spreads(self) -> bool:
        """Whether it reads numbers that are spread over vectors."""
        return any(self.loops.spatial - 1 not in read.axes for read in self.loops.nest.reads)

    @property
    def in_memory(self) -> NDArray[np.bool_]:
        """Whether its sums have no registers: LLVM makes none of long vectors, but for powers of two."""
        width = self.loops.width
        return np.asarray((width > self._machine.lanes) & (np.exp2(np.ceil(np.log2(width))) != width))

    @cached_property
    def loopless(self) -> NDArray[np.bool_]:
        """Whether all steps of a sum are written out."""
        reduced = [at for at, (axis, _) in enumerate(self.loops.order) if axis >= self.loops.spatial]
        left = [np.where(at < self._cut, self.loops.extents[at], 1) for at in reduced]
        return np.asarray(np.all(np.array([*left, np.ones(self.loops.count)]) == 1, axis=0))

    @cached_property
    def steps(self) -> Column:
        """Of a sum, from when it is loaded until it is stored: loops of sums around the body are crossed."""
        steps, open_ = np.ones(self.loops.count), np.ones(self.loops.count, dtype=np.bool_)
        for at in reversed(range(len(self.loops.order))):
            extent, axis = self.loops.extents[at], self.loops.order[at][0]
            if axis < self.loops.spatial:
                open_ &= (at >= self._cut) | (extent == 1)
            else:
                steps = steps * np.where(open_, extent, 1)
        return steps

    @property
    def loading(self) -> Column:
        """What loads take beside an operation that takes one: a compiler loads once what is used again."""
        return self._traffic[0]

    @property
    def spilled(self) -> Column:
        """For each operation: what is used again, but has no register meanwhile."""
        return self._traffic[1]

    @cached_property
    def _traffic(self) -> tuple[Column, Column]:
        loops, reads = self.loops, self.loops.nest.reads
        at = loops.cut(len(loops.levels) - loops.spatial)
        inner = np.array([self._touched(read, at) for read in reads])
        price = np.array([self._price(read) for read in reads])
        loaded, spilled = price @ inner, np.zeros(loops.count)
        free = self._machine.registers + BESIDE - self.sums
        while at and (written := at > self._cut).any():
            at -= 1
            outer = np.array([self._touched(read, at) for read in reads])
            kept = np.where(outer < loops.extents[at] * inner, inner, 0).sum(axis=0)
            more = spilled + np.clip(kept - free, 0, kept)
            loaded = np.where(written, price @ outer, loops.extents[at] * loaded)
            spilled = loops.extents[at] * np.where(written, more, spilled)
            inner = outer
        operations = self._statements[at] * self.vectors
        return loaded / operations, spilled / operations

    def _price(self, read: Access) -> float:
        """Of a load. Numbers that are spread: two a step, and a sum is ready after four steps."""
        if self.loops.spatial - 1 not in read.axes:
            return self._machine.in_flight / NUMBERS
        machine, bytes_each = self._machine, max(read.element_bytes, FLOAT_BYTES)
        return LOADED * bytes_each / 2 * machine.core_gflops / machine.caches[0].gbytes_per_sec

    def _touched(self, read: Access, cut: int) -> Column:
        """Vectors of a buffer, or numbers that are spread over one."""
        last = self.loops.spatial - 1
        count = np.ones(self.loops.count)
        for index in read.indices:
            count = count * self._distinct(index, cut)
        if last not in read.axes:
            return count
        beside = read.relaid or (last, 1) in read.indices[-1]
        return np.asarray(count * (self.vectors if beside else self.loops.width))

    def _distinct(self, index: Index, cut: int) -> Column:
        """Places along one dimension; those of a vector count once."""
        within, last = self.loops.inside[cut], self.loops.spatial - 1
        extents = {axis: within[axis] / (self.loops.width if axis == last else 1) for axis, _ in index}
        every = np.prod(np.array([*extents.values(), np.ones(self.loops.count)]), axis=0)
        if last in extents:
            return np.asarray(every)
        span = 1 + sum((step * (extents[axis] - 1) for axis, step in index), np.zeros(self.loops.count))
        return np.asarray(np.minimum(every, span))


def registers_of(width: Column, lanes: int) -> Column:
    """What a vector of some width occupies: compilers make powers of two of it."""
    even = np.exp2(np.ceil(np.log2(width)))
    vectors = np.maximum(1, even / lanes)
    return vectors * np.where(even == width, 1, PIECED)
