"""The state of an evolution strategy: a share for each sketch and a normal distribution over its points."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodels.base import Column
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.decision_vector_encoding import Genes, Points, genes_of
from searchers.space import Candidate, Space

LEAST_VARIANCE = 0.06  # a quarter of a factor; rounding hides smaller differences
FOUNDERS = 512  # random candidates that the first distribution is fitted to
LEAST_SHARE = 0.1  # share that is spread evenly over the sketches
TRUSTED = 2.0  # prior weight of a sketch's distribution, in winners


@dataclass(frozen=True)
class SketchGaussian:
    """Mean and covariance of good candidates' genes."""

    mean: Column
    covariance: Points

    @classmethod
    def of(cls, points: Points) -> "SketchGaussian":
        """The distribution fitted to the points."""
        mean = points.mean(axis=0)
        return cls(mean, _covariance(points - mean, np.full(len(points), 1 / len(points))))

    def draw(self, rng: np.random.Generator, count: int) -> Points:
        """Random points."""
        noise = rng.standard_normal((count, len(self.mean)))
        spread = self.covariance + LEAST_VARIANCE * np.eye(len(self.mean))
        return np.asarray(self.mean + noise @ np.linalg.cholesky(spread).T)

    def toward(self, winners: Points, weights: Column, rate: float) -> "SketchGaussian":
        """A step of the natural gradient: the mean follows the winners, the covariance their scatter.

        The scatter is around the old mean, so that the distribution widens in the direction it moves.
        """
        mean = (1 - rate) * self.mean + rate * (weights @ winners)
        scatter = _covariance(winners - self.mean, weights)
        return SketchGaussian(mean, (1 - rate) * self.covariance + rate * scatter)


def _covariance(deviations: Points, weights: Column) -> Points:
    return np.asarray((deviations * weights[:, None]).T @ deviations)


@dataclass(frozen=True)
class EsState:
    """An immutable state: learning returns a new one."""

    genes: tuple[Genes, ...]
    shares: Column
    gaussians: tuple[SketchGaussian, ...]

    @classmethod
    def over(cls, space: Space, rng: np.random.Generator) -> "EsState":
        """Equal shares, each distribution as wide as the space."""
        genes = tuple(genes_of(sketch) for sketch in space.sketches)
        founders = _points(genes, space.sample(rng, FOUNDERS * len(genes)))
        shares = np.full(len(genes), 1 / len(genes))
        return cls(genes, shares, tuple(SketchGaussian.of(points) for points, _ in founders))

    def draw(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        """Random well-formed candidates."""
        even = LEAST_SHARE / len(self.shares)
        sizes = rng.multinomial(count, even + (1 - LEAST_SHARE) * self.shares)
        drawn: list[Candidate] = []
        for genes, gaussian, size in zip(self.genes, self.gaussians, sizes, strict=True):
            drawn += genes.sketch.candidates(genes.decode(gaussian.draw(rng, size)).tolist())
        return drawn

    def toward(self, winners: Sequence[Candidate], weights: Column, rate: float) -> "EsState":
        """Move towards the winners; `weights` add up to one."""
        parts = _points(self.genes, winners)
        won = np.array([weights[lines].sum() for _, lines in parts])
        moved = [
            _moved(gaussian, points, weights[lines], rate)
            for gaussian, (points, lines) in zip(self.gaussians, parts, strict=True)
        ]
        return replace(self, shares=(1 - rate) * self.shares + rate * won, gaussians=tuple(moved))


def by_rank(count: int) -> Column:
    """Weights of winners, best first, falling with the log of the rank; they add up to one."""
    weights = np.log(count + 0.5) - np.log(np.arange(1, count + 1))
    return np.asarray(weights / weights.sum())


def _moved(gaussian: SketchGaussian, points: Points, weights: Column, rate: float) -> SketchGaussian:
    """The sketch's distribution after its winners; few winners move it little."""
    if not len(points):
        return gaussian
    total = weights.sum()
    effective = total**2 / (weights**2).sum()
    return gaussian.toward(points, weights / total, float(rate * effective / (effective + TRUSTED)))


def _points(genes: Sequence[Genes], candidates: Sequence[Candidate]) -> list[tuple[Points, list[int]]]:
    """The points of each sketch's candidates, with their lines."""
    places = places_by_sketch([candidate.sketch for candidate in candidates])
    lines = [places.get(each.sketch.key, []) for each in genes]
    return [
        (each.encode(decision_rows(each.sketch, candidates, at)), at)
        for each, at in zip(genes, lines, strict=True)
    ]
