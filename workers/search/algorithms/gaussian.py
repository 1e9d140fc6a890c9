"""A normal distribution over the points of one sketch, moved by weighted winners."""

from dataclasses import dataclass

import numpy as np

from workers.search.genes import Points
from workers.search.measured import Values

LEAST_VARIANCE = 0.06  # a quarter of a factor; rounding hides smaller differences


@dataclass(frozen=True)
class Gaussian:
    """Mean and covariance of good candidates' genes."""

    mean: Values
    covariance: Points

    @classmethod
    def of(cls, points: Points) -> "Gaussian":
        """The distribution fitted to the points."""
        mean = points.mean(axis=0)
        return cls(mean, _covariance(points - mean, np.full(len(points), 1 / len(points))))

    def draw(self, rng: np.random.Generator, count: int) -> Points:
        """Random points."""
        noise = rng.standard_normal((count, len(self.mean)))
        spread = self.covariance + LEAST_VARIANCE * np.eye(len(self.mean))
        return np.asarray(self.mean + noise @ np.linalg.cholesky(spread).T)

    def toward(self, winners: Points, weights: Values, rate: float) -> "Gaussian":
        """A step of the natural gradient: the mean follows the winners, the covariance their scatter.

        The scatter is around the old mean, so that the distribution widens in the direction it moves.
        """
        mean = (1 - rate) * self.mean + rate * (weights @ winners)
        scatter = _covariance(winners - self.mean, weights)
        return Gaussian(mean, (1 - rate) * self.covariance + rate * scatter)


def _covariance(deviations: Points, weights: Values) -> Points:
    return np.asarray((deviations * weights[:, None]).T @ deviations)
