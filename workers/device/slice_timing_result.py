"""The result of a timing on a device: its slices, and how other programs disturbed it."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple


class Slice(NamedTuple):
    """Consecutive runs of a kernel, timed as one interval."""

    mean_sec: float
    disturbed: float | None  # share of its time that other programs had; None: unknown


@dataclass(frozen=True, slots=True)
class SliceTimes:
    """The slices (series of runs) of one timing. Raises ValueError for impossible ones."""

    slices: tuple[Slice, ...]
    cores: int  # of the host
    rivals: float  # mean number of threads of other programs that competed for the cores
    raised: bool  # whether the timed process has priority over all others of its host
    gpu: tuple[str, ...] = ()  # reasons why a GPU ran below its full speed

    def __post_init__(self) -> None:
        shares = [run.disturbed for run in self.slices if run.disturbed is not None]
        times = [run.mean_sec for run in self.slices]
        if not (times and self.cores >= 1 and all(0 <= run < inf for run in (*times, self.rivals))):
            raise ValueError("a timing needs run times, cores and rivals that are finite and not negative")
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"disturbed shares must be from 0 to 1, not {min(shares)} to {max(shares)}")
