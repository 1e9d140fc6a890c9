"""Small programs that find out what a machine computes and moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from workers.interfaces.tensor_arguments import Arguments


class Finds(StrEnum):
    """What the time of a probe says."""

    PEAK = "peak"  # products and sums in registers
    BANDWIDTH = "bandwidth"  # what one core reads of a working set
    MEMORY = "memory"  # what all cores read of memory
    FORK = "fork"  # how long a parallel loop takes that does nothing


@dataclass(frozen=True, slots=True)
class Probe:
    """A function of a library, what it is called with, and what one call does."""

    finds: Finds
    function: str
    library: str  # the file that has it: an instruction that the machine lacks costs a library
    args: Arguments
    cores: int
    dtype: str = "float32"
    lanes: int = 0  # numbers in a vector
    sums: int = 0  # vectors that are summed side by side
    bytes: int = 0  # read by one core, again and again
    work: float = 0.0  # operations or bytes of all cores together


def by_library(probes: Sequence[Probe]) -> list[list[Probe]]:
    """What is run together, and fails together."""
    return [list(found) for _, found in groupby(probes, lambda probe: probe.library)]
