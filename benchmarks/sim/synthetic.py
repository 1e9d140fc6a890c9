"""Drawn tuning curves: new ones for every seed, in shapes that stress a policy in different ways."""

from collections.abc import Callable
from typing import Final

import numpy as np

from benchmarks.sim.curves import ModelCurves, TaskCurve

TASKS: Final = 20
TRIALS: Final = 160  # of every task
OPS: Final = ("conv2d", "dense", "depthwise", "pool", "softmax")


def smooth(seed: int, tasks: int = TASKS, trials: int = TRIALS) -> ModelCurves:
    """Power laws with various amplitudes and speeds; most of the time is in a few tasks."""
    rng = np.random.default_rng([1, seed])
    return ModelCurves("smooth", tuple(_task(rng, at, _power_law(rng, trials)) for at in range(tasks)))


def late(seed: int, tasks: int = TASKS, trials: int = TRIALS) -> ModelCurves:
    """A third of the tasks stand still for long and then drop: who gives up early misses it."""
    rng = np.random.default_rng([2, seed])
    floors = [_step(rng, trials) if rng.random() < 1 / 3 else _power_law(rng, trials) for _ in range(tasks)]
    return ModelCurves("late", tuple(_task(rng, at, floor) for at, floor in enumerate(floors)))


def flat(seed: int, tasks: int = TASKS, trials: int = TRIALS) -> ModelCurves:
    """Only one task in five has anything to gain after its first candidates."""
    rng = np.random.default_rng([3, seed])
    floors = [_power_law(rng, trials) if at % 5 == 0 else np.ones(trials) for at in range(tasks)]
    return ModelCurves("flat", tuple(_task(rng, at, floor) for at, floor in enumerate(floors)))


def failing(seed: int, tasks: int = TASKS, trials: int = TRIALS) -> ModelCurves:
    """A task's candidates fail with a probability of its own, of some nearly all at first."""
    rng = np.random.default_rng([4, seed])
    shares = rng.beta(0.5, 2.0, tasks)
    drawn = [_task(rng, at, _power_law(rng, trials), share) for at, share in enumerate(shares)]
    return ModelCurves("failing", tuple(drawn))


SHAPES: Final[dict[str, Callable[[int], ModelCurves]]] = {
    "smooth": smooth,
    "late": late,
    "flat": flat,
    "failing": failing,
}

Floor = np.ndarray[tuple[int], np.dtype[np.float64]]  # what the n-th candidate is near to, over the final


def _power_law(rng: np.random.Generator, trials: int) -> Floor:
    amplitude, speed = np.exp(rng.uniform(np.log(0.1), np.log(8.0))), rng.uniform(0.4, 1.6)
    floor: Floor = 1.0 + amplitude * (1.0 + np.arange(trials) / 8.0) ** -speed
    return floor


def _step(rng: np.random.Generator, trials: int) -> Floor:
    drop_at = rng.uniform(0.2, 0.6) * trials
    floor: Floor = np.where(np.arange(trials) < drop_at, 1.0 + np.exp(rng.uniform(-1.0, 1.0)), 1.0)
    return floor


def _task(rng: np.random.Generator, index: int, floor: Floor, failing: float = 0.0) -> TaskCurve:
    """Candidates scatter above the floor, as no searcher proposes only good ones."""
    final_us = np.exp(rng.normal(4.0, 1.2))
    latencies = final_us * floor * (1.0 + rng.exponential(0.3, len(floor)))
    failed = rng.random(len(floor)) < failing
    op = OPS[int(rng.integers(len(OPS)))]
    gflops = np.exp(rng.normal(3.0, 1.0))
    return TaskCurve(
        name=f"{op}_{index}",
        weight=int(rng.integers(1, 13)),
        flops=float(final_us * gflops * 1e3),
        op=op,
        structure=f"{op}-{int(rng.integers(3))}",
        candidates_us=tuple(
            None if bad else float(latency) for bad, latency in zip(failed, latencies, strict=True)
        ),
        seconds=(float(rng.uniform(0.1, 0.6)),) * len(floor),
    )
