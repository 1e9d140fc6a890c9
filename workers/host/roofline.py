"""What a machine allows at most, measured on the spot."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

COPIED_BYTES: Final = 256 << 20  # far beyond any cache
SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Roof:
    """The best that was seen: products and sums in single precision, and a copy between large arrays."""

    gflops: float
    gbytes_per_sec: float


def memory_gbytes_per_sec(cores: int) -> float:
    """What so many cores read and write while they copy."""
    source = np.ones(COPIED_BYTES // 4, np.float32)
    copy = np.zeros_like(source)
    parts = list(zip(np.array_split(source, cores), np.array_split(copy, cores), strict=True))
    with ThreadPoolExecutor(cores) as threads:
        best_sec = shortest_sec(lambda: list(threads.map(lambda part: np.copyto(part[1], part[0]), parts)))
    return 2 * COPIED_BYTES / best_sec / 1e9


def shortest_sec(work: Callable[[], object]) -> float:
    """The shortest of the runs of one second: what else the machine does makes them longer only."""
    work()
    best, deadline = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best
