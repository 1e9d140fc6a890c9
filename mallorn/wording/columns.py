"""The columns of a table: how each is headed, and what of a value stands in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
Cell = str | int | float | None


@dataclass(frozen=True)
class Column(Generic[T]):
    """One column of a table of such values."""

    heading: str
    of: Callable[[T], Cell]
    cut: bool = False  # of one long word: cut, not folded, where room is short
