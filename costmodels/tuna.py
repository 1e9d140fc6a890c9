"""Tuna: estimate the run time of generated code on a machine without measuring it."""

from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from costmodels.analytic_draft import FEWEST_ROWS, FIRST_SPREAD, Formula
from costmodels.base import FAILED_LABEL, Column, Groups, Matrix, Prediction, Vector
from costmodels.labels import timed
from costmodels.views import ACCESSES, EXECUTED, Count, check_rows, check_width
from mallorn.core.values.machine import Cache, Machine

LINE_BYTES: Final = 64
PIPES: Final = 2  # instructions that a core issues in the time of one vector product
DIVIDING: Final = 8  # time of a division, in vector products
LONGEST: Final = 127.0  # limit of counts, in log2


class Tuna(Formula):
    """Sums up times for arithmetic, loads and cache traffic from counts and throughputs.

    After "Tuna: A Static Analysis Approach to Optimizing Deep Neural Networks" (2021). Its
    features come from the generated assembly, whose loops are matched with the program's, and
    from a cache model of the lowered program. A linear model ranks candidates, and an
    evolution strategy maximises it by compiling without running. So schedules can be found for
    an unavailable machine.

    Differences: the paper fits coefficients to measurements per micro-architecture. Here they
    are constants from a probe of the machine by micro-kernels, or assumptions about the target
    if no machine was probed. Assembly loops are counted by their literal bounds. `fit` only
    estimates the error. The model is made for CPUs; on other targets its ranking is poor.
    `static` is a trained model of simpler counts.
    """

    KIND: ClassVar[str] = "tuna"
    view: ClassVar[str] = EXECUTED.name

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        self._spread = FIRST_SPREAD
        ran = timed(labels)
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
        ns = _computing(counts, self._machine) + _moving(moved, self._machine)
        # Some cores idle at the end if the chunks do not divide evenly among the cores.
        pieces = np.maximum(1.0, np.rint(counts[:, Count.PIECES]))
        cores = self._machine.cores
        idle = np.ceil(pieces / cores) * cores / pieces
        return np.asarray(np.maximum(ns * idle / 1e3 / cores, 1e-3))


def _centred(values: Vector) -> Vector:
    return np.asarray(values - values.mean(), dtype=np.float32)


def _computing(counts: Column, machine: Machine) -> Column:
    """Return one core's nanoseconds for arithmetic, loads and all other instructions."""
    begun = machine.core_gflops / (2 * machine.lanes)  # vector products per nanosecond
    sums = np.maximum(1.0, counts[:, Count.ACCUMULATORS])
    waiting = np.where(counts[:, Count.PRODUCTS] > 0, np.maximum(1.0, machine.in_flight / sums), 1.0)
    arithmetic = counts[:, Count.ARITHMETIC] * waiting + DIVIDING * counts[:, Count.DIVIDES]
    loaded = counts[:, Count.LOADED] / _levels(machine)[0].gbytes_per_sec
    return np.asarray((arithmetic + counts[:, Count.INSTRUCTIONS] / PIPES) / begun + loaded)


def _moving(moved: Column, machine: Machine) -> Column:
    """Return one core's nanoseconds for cache misses, which the next level has to serve."""
    lines, left, distinct, reuse_bytes = np.moveaxis(moved, 2, 0)
    total = np.zeros(len(moved))
    for cache, next_level in pairwise(_levels(machine)):
        kept = np.where(reuse_bytes > cache.bytes, lines, left)
        missing = np.where(distinct * LINE_BYTES <= cache.bytes, distinct, kept)
        total += missing.sum(axis=1) * LINE_BYTES / next_level.gbytes_per_sec
    return total


def _levels(machine: Machine) -> tuple[Cache, ...]:
    """Return the caches, and last the memory with one core's share of its bandwidth."""
    memory = Cache(bytes=2**62, gbytes_per_sec=machine.memory_gbytes_per_sec / machine.cores)
    return (*machine.caches, memory)
