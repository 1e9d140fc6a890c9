"""A twin is its learner with one switch off, and both are compared run by run."""

import pytest

from benchmarks.lab.cells import Cell, Finished
from benchmarks.lab.grid import Combination
from benchmarks.lab.unlearned import TWINS, Medoids
from benchmarks.twins import compare
from mallorn.core.registry import REGISTRY, resolve
from mallorn.searchers.batch_sampler import BatchSampler, Synthesiser
from tests.kits.samplers import BatchSamplerTestCase


@pytest.mark.parametrize(("name", "location"), TWINS.items())
def test_a_twin_differs_from_its_searcher_in_one_switch(name: str, location: str) -> None:
    original = name.removesuffix("-unlearned")
    assert original in REGISTRY["search"]
    twin, own = resolve("search", location), resolve("search", original)
    assert issubclass(twin, own)
    assert vars(twin()) == vars(own()) | {"learning": False}


class TestMedoids(BatchSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> BatchSampler:
        return Medoids()

    def test_it_makes_nothing_up(self, sampler: BatchSampler) -> None:
        assert not isinstance(sampler, Synthesiser)


def finished(
    search: str, first: int, best: float, *, sampler: str = "topk", seed: int = 0, kind: str = "recorded"
) -> Finished:
    """Within 1.05 of the optimum at the trial `first`, and at `best` in the end."""
    cell = Cell(kind, "a", Combination(search, "xgboost", sampler), seed, 64)
    return Finished(cell, 64, ((first, 1.05), (64, best)), 1.0, 1.0)


def test_above_one_the_learning_earned_something() -> None:
    (gain,) = compare([finished("ppo", 10, 1.0), finished("ppo-unlearned", 20, 1.02)])
    assert (gain.kind, gain.twin, gain.pairs) == ("recorded", "ppo-unlearned", 1)
    assert gain.trials == pytest.approx((2.0, 2.0, 2.0))
    assert gain.best == pytest.approx((1.02, 1.02, 1.02))


def test_only_the_same_runs_are_paired() -> None:
    alone = [
        finished("ppo", 10, 1.0),
        finished("ppo-unlearned", 20, 1.0, seed=1),
        finished("ppo-unlearned", 20, 1.0, sampler="diverse"),
        finished("mcts-unlearned", 20, 1.0),
    ]
    assert compare(alone) == []


def test_the_figures_are_geometric_means_with_an_interval_that_holds_them() -> None:
    runs = [finished("mcts", 16, 1.0, seed=seed) for seed in range(4)]
    runs += [finished("mcts-unlearned", 4 * 2**seed, 1.0, seed=seed) for seed in range(4)]
    (gain,) = compare(runs)
    mean, low, high = gain.trials
    assert mean == pytest.approx(2 ** (-0.5))
    assert low < mean < high


def test_a_sampler_is_compared_with_every_searcher_and_by_kind_of_space() -> None:
    medoids = "clustered-medoids"
    runs = [finished("ppo", 8, 1.0, sampler="clustered"), finished("ppo", 8, 1.1, sampler=medoids)]
    runs += [finished("sa", 8, 1.0, sampler=sampler, kind="synthetic") for sampler in ("clustered", medoids)]
    assert [(gain.kind, gain.twin) for gain in compare(runs)] == [
        ("recorded", "clustered-medoids"),
        ("synthetic", "clustered-medoids"),
    ]
