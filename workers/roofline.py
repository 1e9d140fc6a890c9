"""What the machine reaches elsewhere: a BLAS's arithmetic and its memory, measured on the spot."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from threadpoolctl import threadpool_limits

SIDE: Final = 1536  # of a matrix product that is large enough to run at full speed
COPIED_BYTES: Final = 256 << 20  # far beyond any cache
SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Roof:
    """The best that was seen, in single precision. A BLAS need not use all that a core has."""

    gflops: float
    gbytes_per_sec: float


def measure_roof(cores: int) -> Roof:
    """A large matrix product a core for the arithmetic, a copy between large arrays for the memory."""
    return Roof(_peak_gflops(cores), _memory_gbytes_per_sec(cores))


def _peak_gflops(cores: int) -> float:
    # A product a core, in threads of ours: a BLAS may have been told at its start to use one.
    factors = [np.random.default_rng(core).random((SIDE, SIDE), np.float32) for core in range(cores)]
    with threadpool_limits(1), ThreadPoolExecutor(cores) as threads:
        best_sec = _best(lambda: list(threads.map(lambda factor: factor @ factor, factors)))
    return cores * 2 * SIDE**3 / best_sec / 1e9


def _memory_gbytes_per_sec(cores: int) -> float:
    source = np.ones(COPIED_BYTES // 4, np.float32)
    copy = np.zeros_like(source)
    parts = list(zip(np.array_split(source, cores), np.array_split(copy, cores), strict=True))
    with ThreadPoolExecutor(cores) as threads:
        best_sec = _best(lambda: list(threads.map(lambda part: np.copyto(part[1], part[0]), parts)))
    return 2 * COPIED_BYTES / best_sec / 1e9


def _best(work: Callable[[], object]) -> float:
    """The shortest of the runs of one second: what else the machine does makes them longer only."""
    work()
    best, deadline = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
