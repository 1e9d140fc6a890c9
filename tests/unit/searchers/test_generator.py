"""Schedules that a model of good ones writes, decision by decision."""

from functools import lru_cache
from itertools import product

import numpy as np
import pytest

from costmodels.base import CostModel
from costmodels.decision_generator import GeneratorModel as Model
from costmodels.labels import labels
from searchers.algorithms.sample_decision_model import GENERATED, Generator
from searchers.base import Searcher
from searchers.batch_searcher import Request
from searchers.synthetic_space import SyntheticSpace
from searchers.testing import SearcherTestCase


class TestGenerator(SearcherTestCase):
    @pytest.fixture
    def searcher(self) -> Searcher:
        return Generator(considered=512, drawn=128)


class TestGeneratorWithItsModel(SearcherTestCase):
    @pytest.fixture
    def searcher(self) -> Searcher:
        return Generator(considered=512, drawn=128)

    @pytest.fixture
    def model(self) -> CostModel:
        return base_of((64, 64, 128), (128, 64, 64))


class TestGeneratorThatDoesNotLearn(SearcherTestCase):
    @pytest.fixture
    def searcher(self) -> Searcher:
        return Generator(considered=512, drawn=128, learning=False)


@lru_cache
def base_of(*shapes: tuple[int, int, int]) -> Model:
    """Learned from random candidates of other shapes."""
    rows, times, outcomes = [], [], []
    for group, shape in enumerate(shapes):
        space = SyntheticSpace(*shape)
        trials = [space.measure(c) for c in space.sample(np.random.default_rng(group), 200)]
        rows.append(space.features([trial.candidate for trial in trials]))
        times += [trial.latency_us for trial in trials]
        outcomes += [trial.outcome for trial in trials]
    groups = np.repeat(np.arange(len(shapes)), 200)
    model = Model()
    model.fit(np.concatenate(rows), labels(times, groups, outcomes), groups, seed=0)
    return model


SHAPES = (128, 256, 256), (512, 256, 64), (256, 128, 128), (512, 512, 512), (192, 192, 768)


def test_what_is_drawn_is_faster_than_chance() -> None:
    """For shapes that nobody measured; half and more of what chance draws cannot be built."""
    base = base_of(*SHAPES)
    middle: dict[bool, list[float]] = {True: [], False: []}
    for space in (SyntheticSpace(256, 512, 64), SyntheticSpace(96, 768, 384)):
        for learning, seed in product((True, False), range(2)):
            searcher = Generator(learning=learning, generations=0)
            pool = searcher.pool(_asked(space, base, seed))
            drawn = [candidate for candidate, origin in pool.items() if origin == GENERATED]
            times = np.nan_to_num(space.latency_us(drawn), nan=np.inf)
            middle[learning].append(float(np.log(np.quantile(times, 0.1) / space.optimum_us)))
    assert np.mean(middle[True]) < 0.5 * np.mean(middle[False])


def _asked(space: SyntheticSpace, base: Model, seed: int) -> Request:
    return Request(space, [], base, 16, np.random.default_rng(seed))
