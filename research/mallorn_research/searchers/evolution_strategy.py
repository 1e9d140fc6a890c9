"""An evolution strategy as in Tuna: a distribution over decisions that moves to the best."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.costmodels.views import VIEWS
from mallorn.searchers.base import RANDOM
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.pooled_searcher import PooledSearcher, Request, fastest, score
from mallorn.searchers.space import Candidate, Space
from mallorn_research.searchers.decision_vector_encoding import Genes, Points, genes_of

LEAST_VARIANCE = 0.06  # a quarter of a factor; rounding hides smaller differences
FOUNDERS = 512  # random candidates to which the first distribution is fit
LEAST_SHARE = 0.1  # share of candidates that is spread evenly over the sketches
TRUSTED = 2.0  # weight of a sketch's present distribution, in winners


@dataclass(frozen=True)
class SketchGaussian:
    """Normal distribution of good candidates of one sketch, encoded as points (`Genes`)."""

    mean: Column
    covariance: Points

    @classmethod
    def fit(cls, points: Points) -> "SketchGaussian":
        mean = points.mean(axis=0)
        return cls(mean, _covariance(points - mean, np.full(len(points), 1 / len(points))))

    def draw(self, rng: np.random.Generator, count: int) -> Points:
        noise = rng.standard_normal((count, len(self.mean)))
        spread = self.covariance + LEAST_VARIANCE * np.eye(len(self.mean))
        return np.asarray(self.mean + noise @ np.linalg.cholesky(spread).T)

    def toward(self, winners: Points, weights: Column, rate: float) -> "SketchGaussian":
        """Return the distribution moved towards the winners by a natural-gradient step. The
        scatter is around the old mean, which widens it in the direction of the step."""
        mean = (1 - rate) * self.mean + rate * (weights @ winners)
        scatter = _covariance(winners - self.mean, weights)
        return SketchGaussian(mean, (1 - rate) * self.covariance + rate * scatter)


def _covariance(deviations: Points, weights: Column) -> Points:
    return np.asarray((deviations * weights[:, None]).T @ deviations)


@dataclass(frozen=True)
class EsState:
    """The strategy's state: a share of the candidates and a distribution for each sketch."""

    genes: tuple[Genes, ...]
    shares: Column
    gaussians: tuple[SketchGaussian, ...]

    @classmethod
    def initial(cls, space: Space, rng: np.random.Generator) -> "EsState":
        """Return the initial state: equal shares, and distributions fit to random candidates."""
        genes = tuple(genes_of(sketch) for sketch in space.sketches)
        founders = _encode_by_sketch(genes, space.sample(rng, FOUNDERS * len(genes)))
        shares = np.full(len(genes), 1 / len(genes))
        return cls(genes, shares, tuple(SketchGaussian.fit(points) for points, _ in founders))

    def draw(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        even = LEAST_SHARE / len(self.shares)
        sizes = rng.multinomial(count, even + (1 - LEAST_SHARE) * self.shares)
        candidates: list[Candidate] = []
        for genes, gaussian, size in zip(self.genes, self.gaussians, sizes, strict=True):
            candidates += genes.sketch.candidates(genes.decode(gaussian.draw(rng, size)).tolist())
        return candidates

    def toward(self, winners: Sequence[Candidate], weights: Column, rate: float) -> "EsState":
        """Return the state moved towards the winners; `weights` must sum to 1."""
        parts = _encode_by_sketch(self.genes, winners)
        won = np.array([weights[lines].sum() for _, lines in parts])
        moved = []
        for gaussian, (points, lines) in zip(self.gaussians, parts, strict=True):
            if not len(points):
                moved.append(gaussian)
                continue
            # Few winners move the distribution little.
            total = weights[lines].sum()
            effective = total**2 / (weights[lines] ** 2).sum()
            sketch_rate = float(rate * effective / (effective + TRUSTED))
            moved.append(gaussian.toward(points, weights[lines] / total, sketch_rate))
        return replace(self, shares=(1 - rate) * self.shares + rate * won, gaussians=tuple(moved))


def rank_weights(count: int) -> Column:
    """Return weights of winners, best first; they fall with the log of the rank and sum to 1."""
    weights = np.log(count + 0.5) - np.log(np.arange(1, count + 1))
    return np.asarray(weights / weights.sum())


def _encode_by_sketch(
    genes: Sequence[Genes], candidates: Sequence[Candidate]
) -> list[tuple[Points, list[int]]]:
    places = places_by_sketch([candidate.sketch for candidate in candidates])
    lines = [places.get(sketch_genes.sketch.key, []) for sketch_genes in genes]
    return [
        (sketch_genes.encode(decision_rows(sketch_genes.sketch, candidates, indices)), indices)
        for sketch_genes, indices in zip(genes, lines, strict=True)
    ]


STRATEGY = "strategy"


@dataclass(eq=False, kw_only=True)
class EvolutionStrategy(PooledSearcher):
    """Fits a distribution to the fastest trials, then moves it by the cost model's scores.

    Every round starts from the entire space; no state is kept between rounds. Without a
    model, candidates are drawn from the distribution fit to the fastest. With `learning`
    off, the distribution stays as wide as the space. For a model that reads generated code,
    fewer candidates are drawn, because they must be compiled.
    """

    compiles: ClassVar[bool] = True

    offspring: int = 512
    generations: int = 8
    compiled: int = 192  # candidates of a round, for models of lowered views
    parent_share: float = 1 / 8
    remembered: int = 24
    trusted: int = 4
    rate: float = 0.4
    learning: bool = True

    def pool(self, request: Request) -> dict[Candidate, str]:
        space, rng = request.space, request.rng
        strategy = EsState.initial(space, rng)
        best = fastest(request.history, max(1, min(self.remembered, len(request.history) // 2)))
        if best and self.learning:
            rate = len(best) / (len(best) + self.trusted)
            strategy = strategy.toward(best.candidates, rank_weights(len(best)), rate)
        if request.model is None:
            candidates = strategy.draw(rng, 2 * request.count)
            pool = dict.fromkeys((candidates[index] for index in rng.permutation(len(candidates))), STRATEGY)
            return pool | dict.fromkeys(space.sample(rng, request.count), RANDOM)
        pool = dict.fromkeys(space.defaults(), STRATEGY)
        lowered = VIEWS[request.model.view].lowered
        offspring = self.compiled // self.generations if lowered else self.offspring
        parents = max(2, round(self.parent_share * offspring))
        for _ in range(self.generations):
            candidates = list(dict.fromkeys(strategy.draw(rng, offspring)))
            pool.update(dict.fromkeys(candidates, STRATEGY))
            promise = score(space, request.model, candidates).optimistic_scores(self.optimism)
            winners = [candidates[index] for index in np.argsort(-promise, kind="stable")[:parents]]
            if self.learning:
                strategy = strategy.toward(winners, rank_weights(len(winners)), self.rate)
        return pool
