"""Priors of a task from its siblings; the task's own rounds are left out.

A figure is the mean over the family, shrunk towards the job's, shrunk towards a reference. Priors are rounded
to steps, so that a new round refits only the few tasks whose prior really changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.planner.curve_fit import REFERENCE, Array, CurvePrior, Figure, Fit

# A wider group's mean weighs as much as this many well-known tasks of the narrower group.
SHRINKAGE: Final = 2.0
SMALLEST_DROP_SD: Final = 0.4
DROP_STEP: Final = 0.1
NOISE_STEP: Final = 0.2
SHAPE_STEP: Final = 0.25


@dataclass(frozen=True, slots=True)
class SharedPriors:
    """The family of each task, as numbers."""

    family: NDArray[np.int64]
    count: int

    @classmethod
    def of(cls, names: Sequence[str]) -> "SharedPriors":
        numbers = {name: at for at, name in enumerate(sorted(set(names)))}
        return cls(np.array([numbers[name] for name in names], dtype=np.int64), len(numbers))

    def pool(self, value: Array, known: Array, reference: float, job_shrinkage: float = SHRINKAGE) -> Array:
        """For each task, the mean over the others: its family, then the job, then the reference."""
        job = _mean(value * known, known, reference, job_shrinkage, np.zeros(len(value), dtype=np.int64), 1)
        return _mean(value * known, known, job, SHRINKAGE, self.family, self.count)


def _mean(
    total: Array, known: Array, towards: Array | float, strength: float, group: NDArray[np.int64], count: int
) -> Array:
    others = np.bincount(group, total, count)[group] - total
    weight = np.maximum(np.bincount(group, known, count)[group] - known, 0.0)
    # Tiny weights would divide one rounding error by another.
    weight, others = np.where(weight < 1e-9, 0.0, weight), np.where(weight < 1e-9, 0.0, others)
    result: Array = (strength * np.asarray(towards) + others) / np.maximum(strength + weight, 1e-12)
    return result if strength > 0 else np.where(weight > 0, result, towards)


def curve_priors(fits: Sequence[Fit | None], groups: SharedPriors) -> list[CurvePrior]:
    """The prior of each task's curve, from the others' curves."""

    def pool(figure: Callable[[Fit], Figure], reference: float, power: int = 1) -> Array:
        known = [Figure(0.0, 0.0) if fit is None else figure(fit) for fit in fits]
        values = np.array([each.value**power for each in known])
        return groups.pool(values, np.array([each.known for each in known]), reference)

    drop = pool(lambda fit: fit.drop, REFERENCE.drop)
    square = pool(lambda fit: fit.drop, REFERENCE.drop**2 + REFERENCE.drop_sd**2, power=2)
    drop_sd = np.sqrt(np.maximum(square - drop**2, SMALLEST_DROP_SD**2))
    noise = pool(lambda fit: fit.log_noise, REFERENCE.log_noise)
    knot = pool(lambda fit: fit.log_knot, REFERENCE.log_knot)
    power = pool(lambda fit: fit.log_power, REFERENCE.log_power)
    columns = (
        _stepped(drop, DROP_STEP),
        np.maximum(_stepped(drop_sd, DROP_STEP), DROP_STEP),
        _stepped(noise, NOISE_STEP),
        _stepped(knot, SHAPE_STEP),
        _stepped(power, SHAPE_STEP),
    )
    return [CurvePrior(*row) for row in np.stack(columns, axis=1).tolist()]


def _stepped(values: Array, step: float) -> Array:
    return np.asarray(np.round(values / step) * step)
