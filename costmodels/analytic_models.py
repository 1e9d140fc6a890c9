"""Analytic cost models: they estimate run times from machine constants, without training."""

import sys
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np

from mallorn.core.values.machine import Cache, Machine, assume_typical_cpu
from mallorn.costmodels.base import FAILED_LABEL, Column, CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.decision_columns import SPATIAL_LEVELS, WIDTH, Tiling, read_tiling
from mallorn.costmodels.labels import is_time_label
from mallorn.costmodels.serialization import pack, unpack
from mallorn.costmodels.views import ACCESSES, EXECUTED, Count, check_rows, check_width

FIRST_SPREAD: Final = 1.0  # log units; used until measurements show the error
FEWEST_ROWS: Final = 8
SOME_MACHINE: Final = assume_typical_cpu(cores=8, lanes=16)
LOOP_OPERATIONS: Final = 2  # overhead of a loop iteration, in vector operations
BODY_LIMIT: Final = 1024  # unrolled vector operations that still fit the instruction cache
PIECE: Final = 1 / 6  # cost of dispatching a chunk of a parallel loop, relative to starting it


class Formula(CostModel):
    """Scores candidates by a subclass's formula; `fit` only estimates its error."""

    KIND: ClassVar[str]
    untaught: ClassVar[bool] = True

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine or SOME_MACHINE
        self._spread = FIRST_SPREAD

    @classmethod
    def made_for(cls, machine: Machine | None) -> Self:
        return cls(machine)

    def save(self) -> bytes:
        return pack(self.KIND, {"machine": self._machine.to_stored_json(), "spread": self._spread}, {})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, _ = unpack(cls.KIND, blob)
        machine = numbers.get("machine")  # versions before 0.2.0 stored none
        model = cls(None if machine is None else Machine.model_validate(machine))
        model._spread = numbers["spread"]
        return model


class Draft(Formula):
    """Scores tile sizes by a formula of machine constants, without any measurement.

    The estimated time is the longest of three times: for arithmetic, for data from the
    second-level cache, and for data from the third level or memory. It is multiplied by
    penalties for idle vector lanes, idle cores, too few or too many accumulators, and short
    loops. Every sketch is treated as a blocked reduction on a CPU.
    """

    KIND: ClassVar[str] = "draft"

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        has_time = is_time_label(labels)
        error = self.predict(features[has_time]).mean - labels[has_time]
        is_enough = len(error) >= FEWEST_ROWS
        self._spread = float(max(np.sqrt(np.mean(error**2)), 1e-3)) if is_enough else FIRST_SPREAD

    def predict(self, features: Matrix) -> Prediction:
        """Score the rows; all scores are 0 if the rows are not of the view `decisions`."""
        spread = np.full(len(features), self._spread, dtype=np.float32)
        if features.shape[1] != WIDTH:
            return Prediction(np.zeros(len(features), dtype=np.float32), spread)
        with np.errstate(over="ignore", invalid="ignore"):  # tiles larger than any program's
            score = -np.log(_slowdown(read_tiling(features), self._machine))
        score = np.nan_to_num(score, nan=FAILED_LABEL)
        return Prediction(np.clip(score, FAILED_LABEL, 0.0).astype(np.float32), spread)


def _slowdown(tiles: Tiling, machine: Machine) -> Column:
    """Return the estimated time divided by the least time for so many operations."""
    # A core's share of the memory bandwidth replaces missing cache levels.
    memory = Cache(bytes=sys.maxsize, gbytes_per_sec=machine.memory_gbytes_per_sec / machine.cores)
    first, second, third = (*machine.caches, memory, memory, memory)[:3]
    inner, middle, outer, whole_tile = (
        _InnerBlock.from_inner_levels(tiles, levels) for levels in (1, 2, 3, SPATIAL_LEVELS)
    )
    second_traffic = np.where(middle.footprint <= first.bytes, middle.traffic, inner.traffic)
    third_traffic = np.where(outer.footprint <= second.bytes, outer.traffic, middle.traffic)
    third_rate = np.where(whole_tile.footprint <= third.bytes, third.gbytes_per_sec, memory.gbytes_per_sec)
    from_second = second_traffic * machine.core_gflops / second.gbytes_per_sec
    from_third = third_traffic * machine.core_gflops / third_rate
    core = np.maximum(_core_slowdown(tiles, inner, machine), np.maximum(from_second, from_third))
    # Cores are idle at the end, and small chunks have to be dispatched.
    pieces = tiles.spatial[:, :, :2].prod(axis=(1, 2))
    operations = 2 * tiles.spatial.prod(axis=(1, 2)) * tiles.reduction.prod(axis=(1, 2))
    least_us = operations / machine.core_gflops / 1e3 / machine.cores
    balance = np.ceil(pieces / machine.cores) * machine.cores / pieces
    parallel = np.asarray(balance + pieces * PIECE * machine.fork_us / machine.cores / least_us)
    return np.asarray(core * parallel)


class _InnerBlock(NamedTuple):
    """A block of inner loops; `along` is its last spatial axis, `across` are the others."""

    across: Column
    along: Column
    depth: Column

    @classmethod
    def from_inner_levels(cls, tiles: Tiling, levels: int) -> Self:
        """Return the block of the innermost `levels` spatial levels.

        It has one reduction level fewer, but at least one, because reduction loops enclose
        the innermost spatial level.
        """
        inner = tiles.spatial[:, :, -levels:].prod(axis=2)
        depth = tiles.reduction[:, :, -max(1, levels - 1) :].prod(axis=(1, 2))
        return cls(inner[:, :-1].prod(axis=1), inner[:, -1], depth)

    @property
    def footprint(self) -> Column:
        """Bytes of the block's two operands and its result, as in a matrix product."""
        return 4 * (self.across * self.depth + self.along * self.depth + self.across * self.along)

    @property
    def traffic(self) -> Column:
        """Bytes read and written per operation if the block's data stays in the cache."""
        return 2 / self.across + 2 / self.along + 4 / self.depth


def _core_slowdown(tiles: Tiling, inner: _InnerBlock, machine: Machine) -> Column:
    """Return the cost of the innermost body on one core, relative to the least possible."""
    vectors = np.ceil(inner.along / machine.lanes)
    accumulators = inner.across * vectors
    idle_lanes = vectors * machine.lanes / inner.along
    waiting = np.maximum(1, machine.in_flight / accumulators)
    spilling = 1 + np.log2(np.maximum(1, accumulators / machine.registers)) / 2
    loads = np.maximum(1, 1 / inner.across + 1 / vectors)
    keeping = 1 + 1 / inner.depth
    body = accumulators * inner.depth
    looping = np.where(inner.along * inner.across * inner.depth <= tiles.unroll, 0, LOOP_OPERATIONS)
    too_long = 1 + np.log2(np.maximum(1, np.minimum(body, tiles.unroll) / BODY_LIMIT)) / 4
    busy = np.maximum(waiting, loads) * spilling * keeping
    return np.asarray(idle_lanes * busy * (1 + looping / body) * too_long)


LINE_BYTES: Final = 64
PIPES: Final = 2  # instructions that a core issues in the time of one vector product
DIVIDING: Final = 8  # time of a division, in vector products
LONGEST: Final = 127.0  # limit of counts, in log2


class Tuna(Formula):
    """Estimates run times from instruction counts, cache traffic and machine throughputs.

    After "Tuna: A Static Analysis Approach to Optimizing Deep Neural Networks" (2021). Its
    features come from the generated assembly, whose loops are matched with the program's,
    and from a cache model of the lowered program. A linear model ranks candidates, and an
    evolution strategy maximises it by compiling without running. So schedules can be found
    for an unavailable machine.

    Differences: the paper fits coefficients to measurements per micro-architecture. Here
    they are constants from a probe of the machine by micro-kernels, or assumptions about
    the target if no machine was probed. Assembly loops are counted by their literal bounds.
    `fit` only estimates the error. The model is made for CPUs; on other targets its ranking
    is poor. Another cost model, `static`, is trained on simpler counts.
    """

    KIND: ClassVar[str] = "tuna"
    view: ClassVar[str] = EXECUTED.name

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        self._spread = FIRST_SPREAD
        ran = is_time_label(labels)
        errors = [
            _centred(self.predict(features[lines]).mean) - _centred(labels[lines])
            for group in np.unique(groups[ran])
            if len(lines := np.flatnonzero(ran & (groups == group))) >= FEWEST_ROWS
        ]
        if errors:
            self._spread = float(max(np.sqrt(np.mean(np.concatenate(errors) ** 2)), 1e-3))

    def predict(self, features: Matrix) -> Prediction:
        """Return -log(microseconds) as scores, which are only comparable within a task."""
        check_width(features, self.view)
        mean = np.nan_to_num(-np.log(self.expected_us(features)), nan=FAILED_LABEL)
        spread = np.full(len(features), self._spread, dtype=np.float32)
        return Prediction(mean.astype(np.float32), spread)

    def expected_us(self, features: Matrix) -> Column:
        """Return each candidate's estimated time on all cores, in microseconds."""
        logs = np.nan_to_num(features.astype(np.float64), nan=LONGEST)
        rows = np.exp2(np.clip(logs, 0.0, LONGEST)) - 1
        counts, moved = rows[:, : len(Count)], rows[:, len(Count) :].reshape(len(rows), ACCESSES, 4)
        machine, cores = self._machine, self._machine.cores
        # The caches, and last the memory with one core's share of its bandwidth.
        memory = Cache(bytes=2**62, gbytes_per_sec=machine.memory_gbytes_per_sec / cores)
        levels = (*machine.caches, memory)

        # One core's nanoseconds for arithmetic, loads and all other instructions.
        issued = machine.core_gflops / (2 * machine.lanes)  # vector products per nanosecond
        sums = np.maximum(1.0, counts[:, Count.ACCUMULATORS])
        has_products = counts[:, Count.PRODUCTS] > 0
        waiting = np.where(has_products, np.maximum(1.0, machine.in_flight / sums), 1.0)
        arithmetic = counts[:, Count.ARITHMETIC] * waiting + DIVIDING * counts[:, Count.DIVIDES]
        load_ns = counts[:, Count.LOADED] / levels[0].gbytes_per_sec
        compute_ns = (arithmetic + counts[:, Count.INSTRUCTIONS] / PIPES) / issued + load_ns

        # One core's nanoseconds for cache misses, which the next level has to serve.
        lines, remaining, distinct, reuse_bytes = np.moveaxis(moved, 2, 0)
        miss_ns = np.zeros(len(moved))
        for cache, next_level in pairwise(levels):
            reused = np.where(reuse_bytes > cache.bytes, lines, remaining)
            misses = np.where(distinct * LINE_BYTES <= cache.bytes, distinct, reused)
            miss_ns += misses.sum(axis=1) * LINE_BYTES / next_level.gbytes_per_sec
        ns = compute_ns + miss_ns

        # Some cores idle at the end if the chunks do not divide evenly among the cores.
        pieces = np.maximum(1.0, np.rint(counts[:, Count.PIECES]))
        idle = np.ceil(pieces / cores) * cores / pieces
        return np.asarray(np.maximum(ns * idle / 1e3 / cores, 1e-3))


def _centred(values: Vector) -> Vector:
    return np.asarray(values - values.mean(), dtype=np.float32)
