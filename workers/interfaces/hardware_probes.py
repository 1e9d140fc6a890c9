"""Hardware probes: small programs that measure compute peak and bandwidth of a machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from mallorn.workers.interfaces.tensor_arguments import Arguments


class Finds(StrEnum):
    """The quantity that a probe measures."""

    PEAK = "peak"  # multiply-adds in registers
    BANDWIDTH = "bandwidth"  # what one core reads of a working set per second
    MEMORY = "memory"  # what all cores read from memory per second
    FORK = "fork"  # the time of an empty parallel loop


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe function in a library, its arguments, and the work that one call does."""

    finds: Finds
    function: str
    library: str  # file name; a missing instruction makes the whole library fail
    args: Arguments
    cores: int
    dtype: str = "float32"
    lanes: int = 0  # elements per vector
    sums: int = 0  # independent vector accumulators
    bytes: int = 0  # working set that one core reads repeatedly
    work: float = 0.0  # operations or bytes of all cores together


def group_by_library(probes: Sequence[Probe]) -> list[list[Probe]]:
    """Group adjacent probes of the same library, because they run and fail together."""
    return [list(group) for _, group in groupby(probes, lambda probe: probe.library)]
