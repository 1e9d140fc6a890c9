"""The interface of a time model of one sketch on a GPU."""

from abc import ABC, abstractmethod

from mallorn.costmodels.base import Column
from mallorn.searchers.tile_factorizations import Rows


class GpuModel(ABC):
    """Estimates the times of a sketch's candidates on one machine."""

    @abstractmethod
    def time_us(self, rows: Rows) -> Column | None:
        """Return the estimated time of each decision vector; None if no time is known."""

    @abstractmethod
    def best(self, count: int) -> tuple[Rows, Column]:
        """Return about `count` good decision vectors, and their estimated times."""
