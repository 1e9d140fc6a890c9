"""One policy against another, model by model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.sim.tournament import RECORDED, Cell, geometric_mean

WHATS: Final = ("trials", "seconds")


@dataclass(frozen=True)
class Ratio:
    """How many trials (or seconds) a policy needs for each one that the other needs; below 1 it is better."""

    policy: str
    against: str
    kind: str
    devices: int
    factor: float
    what: str  # of WHATS
    by_model: dict[str, float]

    @property
    def mean(self) -> float:
        return geometric_mean(list(self.by_model.values()))

    @property
    def worst(self) -> float:
        return max(self.by_model.values())


def ratio(
    cells: Sequence[Cell], policy: str, against: str, where: tuple[str, int], what: str, factor: float
) -> Ratio:
    """Compare two policies on all models of a kind with so many devices."""
    kind, devices = where
    here = [cell for cell in cells if (cell.kind, cell.devices) == where]
    mine = {cell.model: _needs(cell, what, factor) for cell in here if cell.policy == policy}
    theirs = {cell.model: _needs(cell, what, factor) for cell in here if cell.policy == against}
    return Ratio(policy, against, kind, devices, factor, what, {m: mine[m] / theirs[m] for m in mine})


def foresight(cells: Sequence[Cell], against: str, fewest: Mapping[str, float], factor: float) -> float:
    """The ratio of trials, on the recorded models and one device, that no policy can go below."""
    here = [cell for cell in cells if (cell.kind, cell.devices, cell.policy) == (RECORDED, 1, against)]
    return geometric_mean([fewest[cell.model] / cell.trials_to(factor) for cell in here])


def _needs(cell: Cell, what: str, factor: float) -> float:
    return cell.trials_to(factor) if what == "trials" else cell.seconds_to(factor)
