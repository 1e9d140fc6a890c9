"""Measurements that a formula makes up."""

from dataclasses import replace
from typing import Final

import numpy as np

from mallorn.core.values.trial import Trial
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.pretraining.training_data import TaskData, TrainingData

SHAPES: Final = (
    (256, 256, 256),
    (128, 512, 64),
    (64, 64, 1024),
    (512, 256, 128),
    (96, 384, 192),
    (1024, 64, 256),
    (32, 1024, 512),
    (196, 512, 128),
    (784, 128, 64),
    (49, 512, 512),
)
ROWS_A_SHAPE: Final = 300
NOISE: Final = 0.05  # log units, as a device that is not alone


def made_up(rows: int = ROWS_A_SHAPE) -> TrainingData:
    """What a formula answers, with a little noise, for products of matrices of several shapes."""
    return TrainingData([_made_up(shape, rows, seed) for seed, shape in enumerate(SHAPES)], "synthetic")


def _made_up(shape: tuple[int, int, int], rows: int, seed: int) -> TaskData:
    space, rng = SyntheticSpace(*shape), np.random.default_rng(seed)
    candidates = space.sample(rng, rows)
    trials = [space.measure(candidate) for candidate in candidates]
    noise = np.exp(rng.normal(0, NOISE, len(trials)))
    return TaskData(
        *("x".join(map(str, shape)), "matmul", "{}", "made up"),
        descriptors=tuple(np.log2(space.shape).tolist()),
        sketches=space.by_key,
        trials=[_noisy(trial, factor) for trial, factor in zip(trials, noise.tolist(), strict=True)],
    )


def _noisy(trial: Trial, factor: float) -> Trial:
    return replace(trial, latency_us=trial.latency_us and trial.latency_us * factor)
