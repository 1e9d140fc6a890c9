"""Samplers that spread a batch: by kinds and by distance."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mallorn.costmodels.base import Prediction
from mallorn.searchers.algorithms.evolutionary import Evolutionary
from mallorn.searchers.learning.exploring_learner import squared_distances
from mallorn.searchers.pooled_searcher import TopK
from mallorn.searchers.sampler import Sampler, ScoredPool
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch, Space
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.searchers.testing import assert_well_formed, generator
from mallorn_research.samplers.spread_batches import (
    Clustered,
    Diverse,
    cluster_to_knee,
    combine_frequent_settings,
    k_means,
    standardize_features,
)
from tests.kits.samplers import SamplerTestCase


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
    points = standardize_features(pool.features)[lines]
    distance = squared_distances(points, points) + 1e9 * np.eye(len(lines))
    return float(np.sqrt(distance.min(axis=1)).mean())


@pytest.mark.parametrize("sampler", [Clustered(), Diverse()])
def test_a_batch_is_less_crowded_than_the_top(sampler: Sampler) -> None:
    pool = crowded_pool()
    top = TopK(0.0).choose(pool, 16, generator(0))
    assert nearest_neighbours(pool, sampler.choose(pool, 16, generator(0))) > nearest_neighbours(pool, top)


@pytest.mark.parametrize("sampler", [Clustered(), Diverse()])
def test_what_has_no_promise_is_not_chosen_for_being_odd(sampler: Sampler) -> None:
    pool = SamplerTestCase.pool(400)
    chosen = sampler.choose(pool, 8, generator(0))
    assert pool.optimistic_scores(0.5)[chosen].min() > np.median(pool.optimistic_scores(0.5))


@pytest.mark.parametrize("sampler", [Clustered(), Diverse()])
def test_the_most_promising_of_all_is_in_the_batch(sampler: Sampler) -> None:
    pool = SamplerTestCase.pool(400)
    assert pool.optimistic_scores(0.5).argmax() in sampler.choose(pool, 16, generator(0))


def test_twins_do_not_share_a_batch() -> None:
    pool = SamplerTestCase.pool(60)
    twice = np.repeat(np.arange(60), 2)
    doubled = ScoredPool(
        [pool.candidates[at] for at in twice.tolist()],
        pool.features[twice],
        Prediction(pool.prediction.mean[twice], pool.prediction.std[twice]),
    )
    chosen = Diverse().choose(doubled, 10, generator(0))
    assert len(set((chosen // 2).tolist())) == 10


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
    clustering = cluster_to_knee(four_heaps(), 64, 4.0, generator(0))
    assert len(set(clustering.member.tolist())) == 4


def test_points_that_are_all_alike_are_one_cluster() -> None:
    clustering = cluster_to_knee(np.ones((20, 3)), 8, 1.25, generator(0))
    assert clustering.medoids(np.ones((20, 3))).size == 1


def two_heaps() -> tuple[ScoredPool, ScoredPool, Candidate]:
    """Around two centres their neighbours; one centre was measured."""
    space = SyntheticSpace(64, 64, 64)
    centres = space.sample(generator(5), 2)
    around = [
        dict.fromkeys(each for each in space.mutate_all(generator(6), [centre] * 40) if each != centre)
        for centre in centres
    ]
    pool = [*around[0], centres[1], *around[1]]
    return scored(space, pool), scored(space, [centres[0]]), centres[0]


def scored(space: SyntheticSpace, candidates: Sequence[Candidate]) -> ScoredPool:
    alike = np.zeros(len(candidates), dtype=np.float32)
    return ScoredPool(candidates, space.features(candidates), Prediction(alike, alike))


def test_what_is_made_up_has_the_most_frequent_setting_of_each_knob() -> None:
    space = SyntheticSpace(64, 64, 64)
    (parent,) = space.defaults()[:1]
    around = [each for each in space.mutate_all(generator(0), [parent] * 30) if each != parent]
    made, *others = combine_frequent_settings(space.by_key[parent.sketch], around)
    assert made == parent, "each neighbour differs in one knob, so all others outvote it"
    assert parent not in others
    for other in (made, *others):
        assert_well_formed(space, other)


def test_of_equally_frequent_settings_the_first_is_taken() -> None:
    space = SyntheticSpace(64, 64, 64)
    pair = [each for each in space.sample(generator(0), 40) if each.sketch == "tiled"][:2]
    assert next(combine_frequent_settings(space.by_key["tiled"], pair)) == pair[0]


def test_after_the_most_frequent_settings_come_those_with_one_second_the_likeliest_first() -> None:
    sketch = Sketch("s", "", tuple(Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1)) for _ in range(3)))
    rows = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 0, 0), (0, 0, 0)]
    made = combine_frequent_settings(sketch, [Candidate("s", row) for row in rows])
    assert [each.decisions for each in made] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]


def test_a_centre_that_was_measured_is_replaced_and_one_that_was_not_is_taken() -> None:
    pool, measured, known = two_heaps()
    composed = Clustered().compose(SyntheticSpace(64, 64, 64), pool, measured, 4, generator(0))
    assert len(composed) == 4
    assert known not in composed


def test_a_made_up_candidate_is_in_no_pool_and_in_the_batch() -> None:
    """All members are measured but a few: what they have in common is neither."""
    space = SyntheticSpace(64, 64, 64)
    (parent,) = space.defaults()[:1]
    around = list(
        dict.fromkeys(each for each in space.mutate_all(generator(0), [parent] * 80) if each != parent)
    )
    measured, fresh = around[: len(around) // 2], around[len(around) // 2 :]
    alike = scored(space, fresh), scored(space, measured)
    batches = [Clustered(worth=9.0).compose(space, *alike, 8, generator(seed)) for seed in range(8)]
    assert any(parent in batch for batch in batches)


def test_a_searcher_measures_what_its_sampler_makes_up() -> None:
    space = SyntheticSpace(64, 64, 64)
    known = [space.measure(each) for each in dict.fromkeys(space.sample(generator(0), 60))]

    class Inventive(Clustered):
        def compose(self, space: Space, *_given: Any) -> list[Candidate]:
            return [wanted]

    wanted = next(
        each
        for each in space.sample(generator(9), 400)
        if space.valid([each])[0] and each not in {trial.candidate for trial in known}
    )
    first, *others = Evolutionary(Inventive(), random_share=0.0).propose(space, known, None, 8, generator(1))
    assert (first.candidate, first.origin) == (wanted, "synthesis")
    assert len({each.candidate for each in others} | {wanted}) == 8
