"""One question to a helper process."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A method and what it is given, ready to be sent."""

    method: str
    params: bytes
    limit_sec: float
    read: Callable[[bytes], R]

    def within(self, limit_sec: float) -> "Call[R]":
        """The same with another time limit."""
        return replace(self, limit_sec=limit_sec)
