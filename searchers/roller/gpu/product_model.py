"""The base of models of products: how often a product is repeated, and its bytes from memory."""

from abc import abstractmethod
from math import prod

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.searchers.roller.gpu.sketch_model import SketchModel


class ProductModel(SketchModel):
    """Model of C[batch, rows, columns] += A * B with padded extents."""

    @abstractmethod
    def results(self) -> float:
        """Return the rows times the columns of one product."""

    @abstractmethod
    def depth(self) -> float:
        """Return the terms of each sum."""

    @property
    def is_split(self) -> bool:
        """Whether a second kernel adds partial sums."""
        return self._places["depth"].choice.width > 2

    def batch(self) -> float:
        """Return how many products there are: what the tiles leave of the program's loops."""
        if self.largest_sum is None:
            return 1.0
        return max(1.0, float(round(prod(self.largest_sum.extents) / self.results() / self.depth())))

    def bytes_through_memory(
        self,
        group: Column,
        rows: Column,
        columns: Column,
        blocks: Column,
        depth_bytes: Column,
        partial_bytes: Column,
    ) -> Column:
        """Return the bytes from and to memory. Blocks that run at a time share what they load
        through the L2 cache: the rows of a group, and as many columns as follow."""
        at_once = np.minimum(blocks, self.machine.cores)
        side = np.minimum(group, at_once)
        loaded_bytes = blocks / at_once * (side * rows + np.ceil(at_once / side) * columns) * depth_bytes
        partial = 2 * partial_bytes * self.results() * self.batch() if self.is_split else 0.0
        return np.asarray(np.maximum(self.memory_bytes(), loaded_bytes) + partial)
