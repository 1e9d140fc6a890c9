"""Models with an opinion on decisions, learned from random candidates of other shapes."""

from functools import lru_cache
from typing import TypeVar

import numpy as np

from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.searchers.synthetic_space import SyntheticSpace

Model = TypeVar("Model", bound=CostModel)
Shape = tuple[int, int, int]
ROWS = 200  # of each shape
SHAPES = (128, 256, 256), (512, 256, 64), (256, 128, 128), (512, 512, 512), (192, 192, 768)


@lru_cache
def base_of(kind: type[Model], *shapes: Shape) -> Model:
    """A model of this kind for shapes that nobody measured."""
    rows, times, outcomes = [], [], []
    for group, shape in enumerate(shapes):
        space = SyntheticSpace(*shape)
        trials = [space.measure(c) for c in space.sample(np.random.default_rng(group), ROWS)]
        rows.append(space.features([trial.candidate for trial in trials]))
        times += [trial.latency_us for trial in trials]
        outcomes += [trial.outcome for trial in trials]
    groups = np.repeat(np.arange(len(shapes)), ROWS)
    model = kind()
    model.fit(np.concatenate(rows), labels(times, groups, outcomes), groups, seed=0)
    return model
