"""Samplers of one idea each: kinds, doubt, distance."""

import numpy as np
import pytest

from costmodels.base import Prediction
from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.samplers.clustered import Clustered
from workers.search.samplers.clusters import k_means, to_the_knee
from workers.search.samplers.contextual import Contextual
from workers.search.samplers.diverse import Diverse
from workers.search.scaling import scaled, squared_distances
from workers.search.synthetic import SyntheticSpace
from workers.search.testing import BatchSamplerTestCase
from workers.search.testing.checks import generator
from workers.search.topk import TopK


class TestClustered(BatchSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> BatchSampler:
        return Clustered()


class TestContextual(BatchSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> BatchSampler:
        return Contextual()


class TestDiverse(BatchSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> BatchSampler:
        return Diverse()


def pool_of(mean: float, std: float, size: int = 200) -> ScoredPool:
    space = SyntheticSpace(64, 64, 64)
    drawn = list(dict.fromkeys(space.sample(generator(0), 2 * size)))[:size]
    alike = np.ones(size, dtype=np.float32)
    noise = 0.01 * generator(1).normal(size=size).astype(np.float32)
    return ScoredPool(drawn, space.features(drawn), Prediction(mean * alike + noise, std * alike))


def crowded_pool() -> ScoredPool:
    """A family whose members are much alike and promise a little more than all others."""
    space = SyntheticSpace(64, 64, 64)
    (parent,) = space.defaults()
    family = list(dict.fromkeys(space.mutate_all(generator(0), [parent] * 100)))
    others = [c for c in dict.fromkeys(space.sample(generator(1), 300)) if c not in family]
    mean = np.concatenate([np.zeros(len(family)), np.full(len(others), -0.2)]).astype(np.float32)
    both = [*family, *others]
    return ScoredPool(both, space.features(both), Prediction(mean, np.zeros_like(mean)))


def nearest_neighbours(pool: ScoredPool, lines: np.ndarray) -> float:
    """How far the members of a batch are from the nearest other, on average."""
    points = scaled(pool.features)[lines]
    distance = squared_distances(points, points) + 1e9 * np.eye(len(lines))
    return float(np.sqrt(distance.min(axis=1)).mean())


@pytest.mark.parametrize("sampler", [Clustered(), Diverse()])
def test_a_batch_is_less_crowded_than_the_top(sampler: BatchSampler) -> None:
    pool = crowded_pool()
    top = TopK(0.0).choose(pool, 16, generator(0))
    assert nearest_neighbours(pool, sampler.choose(pool, 16, generator(0))) > nearest_neighbours(pool, top)


@pytest.mark.parametrize("sampler", [Clustered(), Diverse()])
def test_what_has_no_promise_is_not_chosen_for_being_odd(sampler: BatchSampler) -> None:
    pool = BatchSamplerTestCase.pool(400)
    chosen = sampler.choose(pool, 8, generator(0))
    assert pool.promise(0.5)[chosen].min() > np.median(pool.promise(0.5))


@pytest.mark.parametrize("sampler", [Clustered(), Diverse()])
def test_the_most_promising_of_all_is_in_the_batch(sampler: BatchSampler) -> None:
    pool = BatchSamplerTestCase.pool(400)
    assert pool.promise(0.5).argmax() in sampler.choose(pool, 16, generator(0))


def test_twins_do_not_share_a_batch() -> None:
    pool = BatchSamplerTestCase.pool(60)
    twice = np.repeat(np.arange(60), 2)
    doubled = ScoredPool(
        [pool.candidates[at] for at in twice.tolist()],
        pool.features[twice],
        Prediction(pool.prediction.mean[twice], pool.prediction.std[twice]),
    )
    chosen = Diverse().choose(doubled, 10, generator(0))
    assert len(set((chosen // 2).tolist())) == 10


@pytest.mark.parametrize(
    ("mean", "std", "low", "high"), [(-0.5, 0.0, 0.02, 0.02), (-0.5, 0.3, 0.1, 0.3), (0.0, 9.0, 0.5, 0.5)]
)
def test_the_explored_share_follows_the_doubt(mean: float, std: float, low: float, high: float) -> None:
    assert low - 1e-6 <= Contextual().share(pool_of(mean, std)) <= high + 1e-6


def test_doubt_about_slow_candidates_matters_less() -> None:
    assert Contextual().share(pool_of(-3.0, 0.5)) < 0.2 * Contextual().share(pool_of(0.0, 0.5))


def four_heaps() -> np.ndarray:
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    return np.repeat(centres, 25, axis=0) + 0.1 * generator(0).normal(size=(100, 2))


@pytest.mark.parametrize("seed", range(5))
def test_medoids_are_points_one_of_each_heap(seed: int) -> None:
    points = four_heaps()
    clustering = k_means(points, 4, generator(seed))
    medoids = clustering.medoids(points)
    assert len(set(medoids.tolist())) == len(medoids)
    assert clustering.member[medoids].tolist() == sorted(set(clustering.member.tolist()))


def test_the_knee_is_where_the_heaps_end() -> None:
    clustering = to_the_knee(four_heaps(), 64, 4.0, generator(0))
    assert len(set(clustering.member.tolist())) == 4


def test_points_that_are_all_alike_are_one_cluster() -> None:
    clustering = to_the_knee(np.ones((20, 3)), 8, 1.25, generator(0))
    assert clustering.medoids(np.ones((20, 3))).size == 1
