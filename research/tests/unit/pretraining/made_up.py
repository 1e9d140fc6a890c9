"""Training data whose latencies follow from the decisions, so that a model can learn them."""

import numpy as np

from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn_research.pretraining.training_data import TaskData, TrainingData


def task_data(shape: tuple[int, int, int], rows: int = 60, **changes: str) -> TaskData:
    """What the formula of a made-up product answers."""
    space = SyntheticSpace(*shape)
    candidates = space.sample(np.random.default_rng(shape[0]), rows)
    names = {
        "workload": "x".join(map(str, shape)),
        "op": "matmul",
        "target": "cpu",
        "context": "here",
        "host": "a-host",
    } | changes
    return TaskData(
        **names,
        descriptors=tuple(np.log2(shape).tolist()),
        sketches=space.by_key,
        trials=[space.measure(candidate) for candidate in candidates],
    )


SHAPES = ((256, 256, 256), (128, 512, 64), (64, 64, 1024), (512, 256, 128))


def training_data(rows: int = 60) -> TrainingData:
    """Four tasks of two networks."""
    tasks = [task_data(shape, rows) for shape in SHAPES]
    keys = [task.workload for task in tasks]
    networks = {"one": {keys[0]: 2, keys[1]: 1}, "two": {keys[1]: 1, keys[2]: 3, keys[3]: 1}}
    return TrainingData(tasks, "made-up", networks=networks)
