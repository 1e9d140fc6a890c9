"""The expected latency of a task without a valid result: its FLOPs at the rate of its relatives."""

from collections.abc import Sequence
from math import log
from typing import Final

import numpy as np

from services.planner.fit import Array
from services.planner.pooling import Groups
from services.planner.values import TaskView

# Below this the FLOPs do not determine the time: the task moves memory.
FEW_FLOPS: Final = 1e4
ASSUMED_GFLOPS: Final = 50.0
ASSUMED_SD: Final = 1.5
SMALLEST_SD: Final = 0.3
# A memory mover without others to compare with is assumed this much (in logs) below the job's average.
MOVER_OFFSET: Final = -2.0
MOVER_US: Final = 10.0


def levels(tasks: Sequence[TaskView], groups: Groups) -> tuple[Array, Array]:
    """Mean and standard deviation of the log latency of each task's first batch, without its own rounds."""
    computes = np.array([task.flops >= FEW_FLOPS for task in tasks])
    known = np.array([float(task.best_us is not None) for task in tasks])
    log_us = np.array([log(task.best_us) if task.best_us else 0.0 for task in tasks])
    work = np.array([log(task.flops) if task.flops >= FEW_FLOPS else 0.0 for task in tasks])
    rate = log_us - work
    per_flop = log(1e-3 / ASSUMED_GFLOPS)
    mean, sd = _pooled(rate, known * computes, per_flop, groups)
    mover = float(log_us[known > 0].mean()) + MOVER_OFFSET if known.any() else log(MOVER_US)
    mover_mean, mover_sd = _pooled(log_us, known * ~computes, mover, groups)
    return np.where(computes, work + mean, mover_mean), np.where(computes, sd, mover_sd)


def _pooled(value: Array, known: Array, reference: float, groups: Groups) -> tuple[Array, Array]:
    # Once anything is known the reference is dropped: a job's choices must not depend on its scale.
    mean = groups.pool(value, known, reference, job_shrinkage=0.0)
    off = np.where(known > 0, (value - mean) ** 2, 0.0)
    variance = groups.pool(off, known, ASSUMED_SD**2)
    return mean, np.maximum(np.sqrt(np.maximum(variance, 0.0)), SMALLEST_SD)
