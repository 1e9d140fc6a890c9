"""A synthetic matrix product with a formula for its latency and a known optimum, and
simulated searches on it, to test searchers and compare them by trials.

The formula has the interactions that make real kernels hard to tune: lanes, registers, two
caches, load balance, unrolling versus the instruction cache, regions that cannot be built,
and bodies that never finish compiling.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mallorn.core.outcomes import Outcome
from mallorn.core.values.machine import Cache, Machine
from mallorn.costmodels.base import Column, CostModel
from mallorn.costmodels.labels import labels
from mallorn.searchers.base import Searcher, Trial
from mallorn.searchers.decision_space import DecisionSpace
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch, Space
from mallorn.searchers.tile_factorizations import Rows, tilings

LANES, REGISTERS, CORES = 16, 24, 4
IN_FLIGHT = 12
FLOPS_PER_US = 50_000.0
L1_BYTES, L2_BYTES = 32 * 1024, 512 * 1024
TASK_US = 0.05
MACHINE = Machine(
    cores=CORES,
    lanes=LANES,
    registers=REGISTERS,
    in_flight=IN_FLIGHT,
    core_gflops=FLOPS_PER_US / 1e3,
    gflops={"float32": CORES * FLOPS_PER_US / 1e3},
    caches=(Cache(bytes=L1_BYTES, gbytes_per_sec=100.0), Cache(bytes=L2_BYTES, gbytes_per_sec=40.0)),
    memory_gbytes_per_sec=20.0,
    fork_us=TASK_US,
)
UNROLLS = (0, 16, 64, 512)
LARGEST_BLOCK = 8 * 1024  # points of the two innermost levels; candidates with more are invalid
LARGEST_BODY = 4 * 1024  # unrolled statements; builds of longer bodies time out
TILED, RFACTOR = "tiled", "rfactor"


class SyntheticSpace(DecisionSpace):
    """C[m, n] += A[m, k] * B[k, n] on an imaginary CPU."""

    def __init__(self, m: int = 256, n: int = 256, k: int = 256) -> None:
        self.shape = (m, n, k)
        choices = (
            Choice(ChoiceKind.TILE, 4, extent=m, limit=64),
            Choice(ChoiceKind.TILE, 4, extent=n, limit=64),
            Choice(ChoiceKind.TILE, 2, extent=k, limit=64),
            Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1, 2, 3), labels=UNROLLS, weights=(0.25,) * 4),
            Choice(ChoiceKind.LOCATION, 1, values=(-1, 0, 1)),
        )
        sketches = [Sketch(name, "", choices, ordinal) for ordinal, name in enumerate((TILED, RFACTOR))]
        super().__init__(sketches, np.log2(self.shape).tolist(), MACHINE)

    def defaults(self) -> list[Candidate]:
        """Return one default: full rows in parallel and vector-wide innermost tiles."""
        m, n, k = self.shape
        lanes = np.gcd(n, LANES).item()
        rows, depth = np.gcd(m, 8).item(), np.gcd(k, LANES).item()
        decisions = (m // rows, 1, 1, rows, 1, n // lanes, 1, lanes, k // depth, depth, 1, 0)
        return [Candidate(TILED, decisions)]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [bool(is_valid) for is_valid in ~np.isnan(self.latency_us(candidates))]

    def latency_us(self, candidates: Sequence[Candidate]) -> Column:
        """Return exact latencies: NaN if invalid, infinity if the build times out."""
        width = self.sketches[0].decision_count
        rows = np.array([c.decisions for c in candidates], dtype=np.int32).reshape(-1, width)
        return self._latency(rows, np.array([c.sketch == RFACTOR for c in candidates], dtype=np.bool_))

    def measure(self, candidate: Candidate) -> Trial:
        latency = float(self.latency_us([candidate])[0])
        if np.isnan(latency):
            return Trial(candidate, Outcome.BUILD_ERROR, None)
        if np.isinf(latency):
            return Trial(candidate, Outcome.BUILD_TIMEOUT, None)
        # The build time grows with the length of the unrolled body.
        *_, rows, _, _, _, columns, _, depth, unroll, _ = candidate.decisions
        body = rows * np.ceil(columns / LANES) * depth
        build_ms = 300.0 + float(body if body <= UNROLLS[unroll] else 0)
        return Trial(candidate, Outcome.OK, latency, build_ms=build_ms)

    @cached_property
    def optimum_us(self) -> float:
        """The least latency of all candidates, found by exhaustive search."""
        limit = 64
        outer, inner, depth = (tilings(e, ways) for e, ways in zip(self.shape, (4, 4, 2), strict=True))
        lists = np.array(list(product(range(len(UNROLLS)), (-1, 0, 1))), dtype=np.int32)
        inner, depth = inner[inner[:, -1] <= limit], depth[depth[:, -1] <= limit]
        index = np.indices((len(inner), len(depth), len(lists))).reshape(3, -1)
        tail = np.hstack([inner[index[0]], depth[index[1]], lists[index[2]]])
        optimum = np.inf
        for head in outer[outer[:, -1] <= limit]:
            rows = np.hstack([np.tile(head, (len(tail), 1)), tail])
            for rfactor in (False, True):
                latency = self._latency(rows, np.full(len(rows), rfactor))
                optimum = min(optimum, float(np.nanmin(latency)))
        return optimum

    def _latency(self, rows: Rows, rfactor: NDArray[np.bool_]) -> Column:
        values = rows.astype(np.float64).T
        m, n, k = values[0:4], values[4:8], values[8:10]
        unroll, location = np.array(UNROLLS, dtype=np.float64)[rows[:, 10]], values[11]
        body = m[3] * np.ceil(n[3] / LANES) * k[1]
        tasks = m[0] * n[0] * np.where(rfactor, k[0], 1)
        # Lanes of the last vector that are not used.
        idle_lanes = np.ceil(n[3] / LANES) * LANES / n[3]
        accumulators = m[3] * np.ceil(n[3] / LANES)
        waiting = 1 + np.maximum(0, IN_FLIGHT - accumulators) / 8
        spilling = 1 + 0.4 * np.log2(np.maximum(1, accumulators / REGISTERS)) * (1 + 0.2 * np.log2(k[1]))
        # Bytes of the tiles of both caches, and how often a loaded number is reused.
        rows_1, columns_1 = m[2] * m[3], n[2] * n[3]
        first = 4 * (rows_1 * k[1] + columns_1 * k[1] + rows_1 * columns_1)
        rows_2, columns_2, depth = rows_1 * m[1], columns_1 * n[1], k[0] * k[1]
        second = 4 * (rows_2 * depth + columns_2 * depth + rows_2 * columns_2)
        misses = 0.4 * np.log2(np.maximum(1, first / L1_BYTES))
        misses += 0.2 * np.log2(np.maximum(1, second / L2_BYTES))
        slowdown = idle_lanes * (waiting * spilling * (1 + 4.0 / k[1]))
        slowdown *= (1 + misses) * (1 + 2.0 / np.minimum(rows_2, columns_2))
        # Late writes of results cause memory traffic, writes of small blocks loop overhead.
        block = np.where(location == 0, m[1] * m[2] * m[3] * n[1] * n[2] * n[3], m[2] * m[3] * n[2] * n[3])
        write_cost = np.where(location == -1, 1.2, 1 + 1.0 / np.sqrt(block) + block / 2**16)
        unrolled = body <= unroll
        loop_cost = np.where(unrolled, 1.0, 1 + 2.0 / np.sqrt(body))
        loop_cost *= np.where(unrolled & (body > 128), 1 + 0.15 * np.log2(body / 128), 1.0)
        slowdown *= loop_cost * write_cost
        balance = np.ceil(tasks / CORES) * CORES / tasks
        flops_us = 2.0 * np.prod(self.shape) / CORES / FLOPS_PER_US
        merge_us = np.where(rfactor, self.shape[0] * self.shape[1] * k[0] / FLOPS_PER_US, 0.0)
        latency = flops_us * slowdown * balance + merge_us + TASK_US * tasks + 2.0
        latency[(unroll >= body) & (body * k[0] > LARGEST_BODY) & (unroll > 64)] = np.inf
        latency[m[2] * m[3] * n[2] * n[3] > LARGEST_BLOCK] = np.nan
        latency[(location == 1) & (m[1] * n[1] > 256)] = np.nan
        return np.asarray(latency, dtype=np.float64)


def simulate(
    space: SyntheticSpace,
    searcher: Searcher,
    make_model: Callable[[], CostModel] | None,
    *,
    trials: int,
    round_size: int,
    seed: int,
) -> list[Trial]:
    """Propose, measure and refit until `trials` are measured, or no candidates are left."""
    history: list[Trial] = []
    while len(history) < trials:
        model = fit_on_history(space, history, make_model, seed) if make_model and history else None
        rng = np.random.default_rng([seed, len(history)])
        proposals = searcher.propose(space, history, model, min(round_size, trials - len(history)), rng)
        if not proposals:
            break
        history += [replace(space.measure(p.candidate), origin=p.origin) for p in proposals]
    return history


def fit_on_history(
    space: Space, history: Sequence[Trial], make_model: Callable[[], CostModel], seed: int
) -> CostModel:
    group = np.zeros(len(history), dtype=np.int64)
    label = labels([t.latency_us for t in history], group, [t.outcome for t in history])
    model = make_model()
    rows = space.features_in_view(model.view, [t.candidate for t in history])
    model.fit(rows, label, group, seed=seed)
    return model


def best_us(history: Sequence[Trial]) -> float:
    """Return the least latency in the history, in us. Raises ValueError if it has none."""
    return min(trial.latency_us for trial in history if trial.latency_us is not None)
