"""Distance between targets, to find the target whose schedules and models to reuse."""

from math import log2
from typing import Final, NamedTuple

from mallorn.core.targets import Target

# Prefixes of LLVM's names of x86 processors with 512-bit vectors; others have 256 or fewer.
WIDE: Final = (
    *("x86-64-v4", "skylake-avx512", "skx", "cannonlake", "cascadelake", "cooperlake"),
    *("icelake", "tigerlake", "rocketlake", "sapphirerapids", "emeraldrapids"),
    *("graniterapids", "diamondrapids", "knl", "knm"),
    *("znver4", "znver5", "znver6"),
)


class Distance(NamedTuple):
    """Distance between two targets; smaller is nearer, and earlier fields weigh more."""

    other_vectors: bool
    other_processor: bool
    cores: float  # absolute log2 of the ratio of core counts

    @property
    def has_same_tile_sizes(self) -> bool:
        """Return whether vector width and cores are equal, and so are good tile sizes."""
        return not self.other_vectors and not self.cores


def distance(first: Target, second: Target) -> Distance | None:
    """Return the distance; None if kind or virtual device differs."""
    if first.kind != second.kind or first.virtual_device != second.virtual_device:
        return None
    cores = abs(log2(first.num_cores / second.num_cores))
    return Distance(_is_wide(first) != _is_wide(second), _processor(first) != _processor(second), cores)


def _processor(target: Target) -> str:
    return target.attrs.get("mcpu") or target.attrs.get("arch") or target.attrs.get("tag") or ""


def _is_wide(target: Target) -> bool:
    return _processor(target).startswith(WIDE)
