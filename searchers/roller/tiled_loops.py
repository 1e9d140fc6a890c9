"""The loops of a tiled block for many decision vectors, and footprints inside each loop."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from costmodels.base import Column
from searchers.loop_nest import Access, Nest
from searchers.tile_factorizations import Rows

LINE_BYTES: Final = 64

# Outermost first: levels of the tiles of spatial axes, and of reductions.
_ORDER: Final = ((False, 0), (False, 1), (True, 0), (False, 2), (True, 1), (False, 3))


class Loops:
    """The loops of many candidates, outermost first; cut p is the body of the first p loops.

    A row has 4 factors per spatial axis, then 2 per reduction.
    """

    def __init__(self, nest: Nest, rows: Rows) -> None:
        self.nest = nest
        self.spatial = sum(not axis.reduced for axis in nest.axes)
        self.axes = len(nest.axes)
        self.count = len(rows)
        self._rows = rows.astype(np.float64)

    def factor(self, axis: int, level: int) -> Column:
        """Return the factor of one level of an axis's tile."""
        start = 4 * min(axis, self.spatial) + 2 * max(0, axis - self.spatial)
        return np.asarray(self._rows[:, start + level])

    def across(self, level: int) -> Column:
        """Return the product of all spatial axes' factors at one level."""
        return self._product(range(self.spatial), level)

    def deep(self, level: int) -> Column:
        """Return the product of all reductions' factors at one level."""
        return self._product(range(self.spatial, self.axes), level)

    @cached_property
    def depth(self) -> Column:
        """The product of all reductions' extents."""
        return self.deep(0) * self.deep(1)

    @property
    def width(self) -> Column:
        """The innermost factor of the last spatial axis, which is vectorised."""
        return self.factor(self.spatial - 1, 3)

    @cached_property
    def order(self) -> list[tuple[int, int]]:
        """Axis and level of each loop whose factor is above 1 for any candidate."""
        return [loop for loop in self.levels if (self.factor(*loop) > 1).any()]

    def cut(self, loops: int) -> int:
        """Return the cut inside the first `loops` of `levels`, including loops of extent 1."""
        return sum(loop in self.order for loop in self.levels[:loops])

    @cached_property
    def levels(self) -> list[tuple[int, int]]:
        """Axis and level of every loop, outermost first."""
        kinds = {False: range(self.spatial), True: range(self.spatial, self.axes)}
        return [(axis, level) for is_reduction, level in _ORDER for axis in kinds[is_reduction]]

    @cached_property
    def extents(self) -> list[Column]:
        return [self.factor(axis, level) for axis, level in self.order]

    @cached_property
    def outside(self) -> list[Column]:
        """Number of times that the loops inside each cut run."""
        runs = [np.ones(self.count)]
        for extent in self.extents:
            runs.append(runs[-1] * extent)
        return runs

    @cached_property
    def inside(self) -> list[list[Column]]:
        """For each cut, the extent of each axis inside it."""
        sizes = [[np.ones(self.count) for _ in range(self.axes)]]
        for (axis, _), extent in zip(reversed(self.order), reversed(self.extents), strict=True):
            extents = list(sizes[-1])
            extents[axis] = extents[axis] * extent
            sizes.append(extents)
        return sizes[::-1]

    def points(self, cut: int) -> Column:
        """Return how often the block's statement runs inside a cut."""
        return np.asarray(np.prod(self.inside[cut], axis=0))

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
        """Return how often each cut's data are fetched; loops without the index reuse them."""
        times = [np.ones(self.count)]
        for position, (axis, _) in enumerate(self.order):
            is_refetched = (self.extents[position] > 1) & (axis in access.axes)
            times.append(np.where(is_refetched, self.outside[position + 1], times[-1]))
        return times

    def _span(self, index: Sequence[tuple[int, int]], cut: int) -> Column:
        extents = self.inside[cut]
        return np.asarray(1 + sum((step * (extents[axis] - 1) for axis, step in index), np.zeros(self.count)))

    def _product(self, axes: Sequence[int], level: int) -> Column:
        points = np.ones(self.count)
        for axis in axes:
            points = points * self.factor(axis, level)
        return points
