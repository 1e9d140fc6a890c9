"""What a tensor program is called with, as it crosses the process border and as the dataset keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Tensor(NamedTuple):
    """One argument, in the form of TVM's own logs."""

    kind: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """All arguments of a program in order; inputs and outputs."""

    args: tuple[Tensor, ...]
    outputs: tuple[int, ...] = ()  # indices
    # Of integer arguments by their index: the least, and the first that is too large.
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
