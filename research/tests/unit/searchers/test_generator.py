"""Schedules that a model of good ones writes, decision by decision."""

from itertools import product

import numpy as np

from mallorn.searchers.pooled_searcher import Request
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.costmodels.prefix_boosters import GeneratorModel
from mallorn_research.searchers.sample_decision_model import GENERATED, Generator
from research.tests.unit.searchers.trained_bases import SHAPES, base_of


def test_what_is_drawn_is_faster_than_chance() -> None:
    """For shapes that nobody measured; half and more of what chance draws cannot be built."""
    base = base_of(GeneratorModel, *SHAPES)
    middle: dict[bool, list[float]] = {True: [], False: []}
    for space in (SyntheticSpace(256, 512, 64), SyntheticSpace(96, 768, 384)):
        for learning, seed in product((True, False), range(2)):
            searcher = Generator(learning=learning, generations=0)
            pool = searcher.pool(_asked(space, base, seed))
            drawn = [candidate for candidate, origin in pool.items() if origin == GENERATED]
            times = np.nan_to_num(space.latency_us(drawn), nan=np.inf)
            middle[learning].append(float(np.log(np.quantile(times, 0.1) / space.optimum_us)))
    assert np.mean(middle[True]) < 0.5 * np.mean(middle[False])


def _asked(space: SyntheticSpace, base: GeneratorModel, seed: int) -> Request:
    return Request(space, [], base, 16, np.random.default_rng(seed))
