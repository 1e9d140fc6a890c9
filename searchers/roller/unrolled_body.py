"""The unrolled innermost loops of a tiled block, as straight-line code."""

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Column, Indices
from mallorn.core.values.machine import Machine
from searchers.loop_nest import FLOAT_BYTES, Access, Index
from searchers.roller.tiled_loops import Loops

UNROLLED: Final = 64  # vector operations that compilers unroll by default
LOADED: Final = 1.2  # time of vector loads during computation, relative to loads only
NUMBERS: Final = 8.0  # scalars that can be broadcast during the latency of an accumulator
PIECED: Final = 2.0  # cost factor of vectors whose width is not a power of two
BESIDE: Final = 3  # registers not used for accumulators


class Body:
    """The unrolled loops of each candidate; a statement computes one vector of a tile."""

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
        """Vector multiply-adds in the body."""
        return np.asarray(
            np.take_along_axis(np.array(self._statements), self._cut[None], axis=0)[0] * self.vectors
        )

    @cached_property
    def sums(self) -> Column:
        """Vector accumulators in the body."""
        points = np.ones(self.loops.count)
        for position, (axis, _) in enumerate(self.loops.order):
            if axis < self.loops.spatial:
                points = points * np.where(position >= self._cut, self.loops.extents[position], 1)
        return points / self.loops.width * self.vectors

    @property
    def spreads(self) -> bool:
        """Whether the body broadcasts scalars to vectors."""
        return any(self.loops.spatial - 1 not in read.axes for read in self.loops.nest.reads)

    @property
    def in_memory(self) -> NDArray[np.bool_]:
        """Whether accumulators are in memory, not in registers.

        LLVM keeps long vectors in registers only if their width is a power of two.
        """
        width = self.loops.width
        return np.asarray((width > self._machine.lanes) & (np.exp2(np.ceil(np.log2(width))) != width))

    @cached_property
    def loopless(self) -> NDArray[np.bool_]:
        """Whether all reduction loops are unrolled."""
        reductions = [loop for loop, (axis, _) in enumerate(self.loops.order) if axis >= self.loops.spatial]
        remaining = [np.where(loop < self._cut, self.loops.extents[loop], 1) for loop in reductions]
        return np.asarray(np.all(np.array([*remaining, np.ones(self.loops.count)]) == 1, axis=0))

    @cached_property
    def steps(self) -> Column:
        """Reduction steps between loading and storing an accumulator, also around the body."""
        steps, stays_loaded = np.ones(self.loops.count), np.ones(self.loops.count, dtype=np.bool_)
        for position in reversed(range(len(self.loops.order))):
            extent, axis = self.loops.extents[position], self.loops.order[position][0]
            if axis < self.loops.spatial:
                stays_loaded &= (position >= self._cut) | (extent == 1)
            else:
                steps = steps * np.where(stays_loaded, extent, 1)
        return steps

    @property
    def loading(self) -> Column:
        """Steps for loads per operation; compilers load reused operands only once."""
        return self._traffic[0]

    @property
    def spilled(self) -> Column:
        """Reused operands per operation that do not fit into registers."""
        return self._traffic[1]

    @cached_property
    def _traffic(self) -> tuple[Column, Column]:
        loops, reads = self.loops, self.loops.nest.reads
        cut = loops.cut(len(loops.levels) - loops.spatial)
        inner = np.array([self._touched(read, cut) for read in reads])
        prices = np.array([self._price(read) for read in reads])
        loads, spilled = prices @ inner, np.zeros(loops.count)
        free = self._machine.registers + BESIDE - self.sums
        while cut and (is_looped := cut > self._cut).any():
            cut -= 1
            outer = np.array([self._touched(read, cut) for read in reads])
            held_operands = np.where(outer < loops.extents[cut] * inner, inner, 0).sum(axis=0)
            next_spilled = spilled + np.clip(held_operands - free, 0, held_operands)
            loads = np.where(is_looped, prices @ outer, loops.extents[cut] * loads)
            spilled = loops.extents[cut] * np.where(is_looped, next_spilled, spilled)
            inner = outer
        operations = self._statements[cut] * self.vectors
        return loads / operations, spilled / operations

    def _price(self, read: Access) -> float:
        """Return the steps of a load. Per step 2 scalars are broadcast; a sum takes 4 steps."""
        if self.loops.spatial - 1 not in read.axes:
            return self._machine.in_flight / NUMBERS
        machine, bytes_each = self._machine, max(read.element_bytes, FLOAT_BYTES)
        return LOADED * bytes_each / 2 * machine.core_gflops / machine.caches[0].gbytes_per_sec

    def _touched(self, read: Access, cut: int) -> Column:
        """Return the vectors read of a buffer, or the scalars if they are broadcast."""
        last = self.loops.spatial - 1
        count = np.ones(self.loops.count)
        for index in read.indices:
            count = count * self._distinct(index, cut)
        if last not in read.axes:
            return count
        is_contiguous = read.relaid or (last, 1) in read.indices[-1]
        return np.asarray(count * (self.vectors if is_contiguous else self.loops.width))

    def _distinct(self, index: Index, cut: int) -> Column:
        """Return the distinct indices along one dimension; those of a vector count once."""
        inner_extents, last = self.loops.inside[cut], self.loops.spatial - 1
        extents = {axis: inner_extents[axis] / (self.loops.width if axis == last else 1) for axis, _ in index}
        combinations = np.prod(np.array([*extents.values(), np.ones(self.loops.count)]), axis=0)
        if last in extents:
            return np.asarray(combinations)
        span = 1 + sum((step * (extents[axis] - 1) for axis, step in index), np.zeros(self.loops.count))
        return np.asarray(np.minimum(combinations, span))


def registers_of(width: Column, lanes: int) -> Column:
    """Return the registers of a vector; compilers round its width up to a power of two."""
    even = np.exp2(np.ceil(np.log2(width)))
    vectors = np.maximum(1, even / lanes)
    return vectors * np.where(even == width, 1, PIECED)
