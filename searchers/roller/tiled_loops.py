"""The loops of a tiled block, for many decision vectors at once, and what lies inside each of them."""

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
    """Loops of many candidates, outermost first; cut p stands for everything inside the first p loops.

    A row has the factors of the spatial axes, then those of the reductions. Short rows are of blocks that
    are not cut so often.
    """

    def __init__(self, nest: Nest, rows: Rows) -> None:
        self.nest = nest
        self.spatial = sum(not axis.reduced for axis in nest.axes)
        self.axes = len(nest.axes)
        self.count = len(rows)
        self._rows = rows.astype(np.float64)

    def factor(self, axis: int, level: int) -> Column:
        """One level of an axis's tile."""
        start = 4 * min(axis, self.spatial) + 2 * max(0, axis - self.spatial)
        return np.asarray(self._rows[:, start + level])

    def across(self, level: int) -> Column:
        """The points of one level of all spatial axes."""
        return self._product(range(self.spatial), level)

    def deep(self, level: int) -> Column:
        """The steps of one level of all reductions."""
        return self._product(range(self.spatial, self.axes), level)

    @cached_property
    def depth(self) -> Column:
        """The steps of all reductions."""
        return self.deep(0) * self.deep(1)

    @property
    def width(self) -> Column:
        """The innermost factor of the last spatial axis, which is made vectors of."""
        return self.factor(self.spatial - 1, 3)

    @cached_property
    def order(self) -> list[tuple[int, int]]:
        """The axis and the level of each loop that any of the candidates has."""
        return [loop for loop in self.levels if (self.factor(*loop) > 1).any()]

    def cut(self, loops: int) -> int:
        """The cut behind so many loops, counted with those that nobody has."""
        return sum(loop in self.order for loop in self.levels[:loops])

    @cached_property
    def levels(self) -> list[tuple[int, int]]:
        """The axis and the level of every loop, outermost first."""
        kinds = {False: range(self.spatial), True: range(self.spatial, self.axes)}
        return [(axis, level) for reduced, level in _ORDER for axis in kinds[reduced]]

    @cached_property
    def extents(self) -> list[Column]:
        return [self.factor(axis, level) for axis, level in self.order]

    @cached_property
    def outside(self) -> list[Column]:
        """How often what is inside each cut runs."""
        runs = [np.ones(self.count)]
        for extent in self.extents:
            runs.append(runs[-1] * extent)
        return runs

    @cached_property
    def inside(self) -> list[list[Column]]:
        """For each cut the extent of each axis inside it."""
        sizes = [[np.ones(self.count) for _ in range(self.axes)]]
        for (axis, _), extent in zip(reversed(self.order), reversed(self.extents), strict=True):
            within = list(sizes[-1])
            within[axis] = within[axis] * extent
            sizes.append(within)
        return sizes[::-1]

    def points(self, cut: int) -> Column:
        """How often the block's statement runs inside a cut."""
        return np.asarray(np.prod(self.inside[cut], axis=0))

    def bytes_of(self, access: Access, cut: int) -> Column:
        """What is touched of a buffer inside a cut, in whole lines of the cache."""
        size = np.full(self.count, float(access.element_bytes))
        for index, length in zip(access.indices[:-1], access.shape[:-1], strict=True):
            size = size * np.minimum(self._span(index, cut), length)
        if not access.shape:
            return size
        line = 1 if access.relaid else LINE_BYTES / access.element_bytes
        lines = np.ceil(np.minimum(self._span(access.indices[-1], cut), access.shape[-1]) / line)
        return np.asarray(size * lines * line)

    def fetches(self, access: Access) -> list[Column]:
        """How often what is inside each cut must be fetched: loops that do not index a buffer reuse it."""
        times = [np.ones(self.count)]
        for at, (axis, _) in enumerate(self.order):
            again = (self.extents[at] > 1) & (axis in access.axes)
            times.append(np.where(again, self.outside[at + 1], times[-1]))
        return times

    def _span(self, index: Sequence[tuple[int, int]], cut: int) -> Column:
        within = self.inside[cut]
        return np.asarray(1 + sum((step * (within[axis] - 1) for axis, step in index), np.zeros(self.count)))

    def _product(self, axes: Sequence[int], level: int) -> Column:
        points = np.ones(self.count)
        for axis in axes:
            points = points * self.factor(axis, level)
        return points
