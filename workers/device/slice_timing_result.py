"""What a device tells of a timing: each slice, and what of its host others had meanwhile."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple


class Slice(NamedTuple):
    """Runs back to back."""

    mean_sec: float
    disturbed: float | None  # the share of it in which its processors were others'; None: not counted


@dataclass(frozen=True, slots=True)
class SliceTimes:
    """The slices of one call. Raises ValueError for what no device can have measured."""

    slices: tuple[Slice, ...]
    cores: int  # that the host has
    rivals: float  # programs of others that competed for them, in the mean
    raised: bool  # whether the timed process goes before all others of its host
    gpu: tuple[str, ...] = ()  # what kept a GPU from its full speed, in words

    def __post_init__(self) -> None:
        shares = [each.disturbed for each in self.slices if each.disturbed is not None]
        times = [each.mean_sec for each in self.slices]
        if not (times and self.cores >= 1 and all(0 <= each < inf for each in (*times, self.rivals))):
            raise ValueError("no times, or impossible ones")
        if not all(0 <= share <= 1 for share in shares):
            raise ValueError("no share of a slice")
