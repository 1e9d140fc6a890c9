"""How near two targets are to each other: whose schedules and models are the better prior for a third."""

from math import log2
from typing import Final, NamedTuple

from mallorn.core.stand_in_measurers import stand_in
from mallorn.core.targets import Target

# LLVM's names of x86 processors with vectors of 512 bits, as their names begin; others have 256 or fewer.
WIDE: Final = (
    *(
        "x86-64-v4",
        "skylake-avx512",
        "skx",
        "cannonlake",
        "cascadelake",
        "cooperlake",
        "icelake",
        "tigerlake",
    ),
    *("rocketlake", "sapphirerapids", "emeraldrapids", "graniterapids", "diamondrapids", "knl", "knm"),
    *("znver4", "znver5", "znver6"),
)


class Distance(NamedTuple):
    """Less is nearer: what comes first counts most."""

    other_vectors: bool
    other_processor: bool
    cores: float  # doublings

    @property
    def cuts_alike(self) -> bool:
        """Whether schedules for one are cut as they would be for the other: for its vectors and its cores."""
        return not self.other_vectors and not self.cores


def distance(one: Target, other: Target) -> Distance | None:
    """How far two targets are from each other; None: they are no kin."""
    if one.kind != other.kind or stand_in(one) != stand_in(other):
        return None
    cores = abs(log2(one.num_cores / other.num_cores))
    return Distance(_is_wide(one) != _is_wide(other), _processor(one) != _processor(other), cores)


def _processor(target: Target) -> str:
    return target.attrs.get("mcpu") or target.attrs.get("arch") or target.attrs.get("tag") or ""


def _is_wide(target: Target) -> bool:
    return _processor(target).startswith(WIDE)
