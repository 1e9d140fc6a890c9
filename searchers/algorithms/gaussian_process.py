"""Gaussian process for targets that are minimised, and three acquisition functions over it."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from costmodels.base import Column
from searchers.feature_scaling import Points, squared_distances

LENGTHS: Final = (0.5, 1.0, 2.0, 4.0)
NOISES: Final = (1e-3, 1e-2, 1e-1)  # variances, relative to the targets' variance of 1
LEAST_VARIANCE: Final = 1e-9


def matern(points: Points, others: Points, length: float) -> Points:
    """The Matérn 3/2 kernel, for functions that are differentiable once: latencies have kinks."""
    distance = np.sqrt(3.0 * squared_distances(points, others)) / length
    return np.asarray((1.0 + distance) * np.exp(-distance))


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A Gaussian process fitted to points and their targets."""

    points: Points
    factor: Points  # lower Cholesky factor of the kernel matrix with noise
    weights: Column
    length: float
    noise: float
    centre: float
    scale: float

    @classmethod
    def fit(cls, points: Points, targets: Column) -> "GaussianProcess":
        """Fit with the likeliest of a few lengths and noises."""
        centre, scale = float(targets.mean()), float(targets.std()) or 1.0
        unit = (targets - centre) / scale
        kernels = {length: matern(points, points, length) for length in LENGTHS}
        fits = []
        for length, noise in product(LENGTHS, NOISES):
            noisy = kernels[length] + noise * np.eye(len(points))
            factor = np.asarray(np.linalg.cholesky(noisy), dtype=np.float64)
            half = np.asarray(solve_triangular(factor, unit, lower=True), dtype=np.float64)
            likelihood = -0.5 * half @ half - np.log(np.diag(factor)).sum()
            fits.append((float(likelihood), length, noise, factor, half))
        _, length, noise, factor, half = max(fits, key=lambda fitted: fitted[0])
        weights = np.asarray(solve_triangular(factor.T, half), dtype=np.float64)
        return cls(points, factor, weights, length, noise, centre, scale)

    def beliefs(self, points: Points) -> "Beliefs":
        """The posterior at other points, which can be conditioned further."""
        cross = matern(self.points, points, self.length)
        mean = self.centre + self.scale * (cross.T @ self.weights)
        rows = np.asarray(solve_triangular(self.factor, cross, lower=True), dtype=np.float64)
        return Beliefs(self, points, mean, rows)


class Beliefs:
    """The posterior at a pool of points. Believing one point narrows those around it (kriging believer)."""

    def __init__(self, process: GaussianProcess, points: Points, mean: Column, rows: Points) -> None:
        self.mean = mean
        self._process = process
        self._points = points
        self._rows = rows
        self._variance = np.maximum(LEAST_VARIANCE, 1.0 - (rows**2).sum(axis=0))

    @property
    def std(self) -> Column:
        """Standard deviations in the units of the targets."""
        return np.asarray(self._process.scale * np.sqrt(self._variance))

    def believe(self, at: int) -> None:
        """Treat one point's mean as its measured value: means stay, deviations shrink."""
        similar = matern(self._points[at : at + 1], self._points, self._process.length)[0]
        left = similar - self._rows[:, at] @ self._rows
        row = left / np.sqrt(self._variance[at] + self._process.noise)
        self._rows = np.vstack([self._rows, row])
        self._variance = np.maximum(LEAST_VARIANCE, self._variance - row**2)


# From mean, deviation, the best target so far and the wanted exploration; higher is better.
Acquisition = Callable[[Column, Column, float, float], Column]

MOST_DEVIATIONS: Final = 2.0  # how optimistic the confidence bound is at full exploration


def expected_improvement(mean: Column, std: Column, best: float, exploration: float) -> Column:
    gap = best - exploration * std.mean() - mean
    z = gap / std
    return np.asarray(gap * ndtr(z) + std * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi))


def probability_of_improvement(mean: Column, std: Column, best: float, exploration: float) -> Column:
    return np.asarray((best - exploration * std.mean() - mean) / std)  # ranks as the probability does


def lower_bound(mean: Column, std: Column, best: float, exploration: float) -> Column:
    return np.asarray(best - (mean - MOST_DEVIATIONS * exploration * std))


ACQUISITIONS: Final[dict[str, Acquisition]] = {
    "ei": expected_improvement,
    "pi": probability_of_improvement,
    "lcb": lower_bound,
}
