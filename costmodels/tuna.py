"""Tuna: the time that generated code should take on a machine, without one measurement of it."""

from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from costmodels.analytic_draft import FEWEST_ROWS, FIRST_SPREAD, Formula
from costmodels.base import FAILED_LABEL, Column, Groups, Matrix, Prediction, Vector
from costmodels.labels import timed
from costmodels.views import ACCESSES, EXECUTED, Count, check_rows, check_width
from mallorn.core.values.machine import Cache, Machine

LINE_BYTES: Final = 64
PIPES: Final = 2  # instructions that a core begins for each product that it can begin
DIVIDING: Final = 8  # products in whose time one division is done
LONGEST: Final = 127.0  # in log2: counts beyond are no program's


class Tuna(Formula):
    """A sum of what the code computes, loads and moves, each by what the machine does of it in a second.

    After "Tuna: A Static Analysis Approach to Optimizing Deep Neural Networks" (2021). Its features come from
    the generated assembly, whose loops are matched with the program's, and from a model of the caches on the
    lowered program; a linear model of them ranks candidates, and an evolution strategy climbs it, compiling
    and never running. So schedules can be found for a machine that is not at hand.

    Where it differs: the paper fits its coefficients per micro-architecture to measurements. Here they are
    the constants that a probe of micro-kernels found of the machine, or what is assumed of the target where
    none was seen. Loops of the assembly are counted by the bounds written into them. Fitting only estimates
    the error. CPUs alone are meant: elsewhere the order says little. `static` learns weights for simpler
    counts.
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
        """The negative logarithm of microseconds: candidates of one task may be compared."""
        check_width(features, self.view)
        mean = np.nan_to_num(-np.log(self.expected_us(features)), nan=FAILED_LABEL)
        spread = np.full(len(features), self._spread, dtype=np.float32)
        return Prediction(mean.astype(np.float32), spread)

    def expected_us(self, features: Matrix) -> Column:
        """What each candidate should take on all cores."""
        logs = np.nan_to_num(features.astype(np.float64), nan=LONGEST)
        rows = np.exp2(np.clip(logs, 0.0, LONGEST)) - 1
        counts, moved = rows[:, : len(Count)], rows[:, len(Count) :].reshape(len(rows), ACCESSES, 4)
        ns = _computing(counts, self._machine) + _moving(moved, self._machine)
        # Pieces need not divide among the cores: some of those idle in the last turn.
        pieces = np.maximum(1.0, np.rint(counts[:, Count.PIECES]))
        cores = self._machine.cores
        idle = np.ceil(pieces / cores) * cores / pieces
        return np.asarray(np.maximum(ns * idle / 1e3 / cores, 1e-3))


def _centred(values: Vector) -> Vector:
    return np.asarray(values - values.mean(), dtype=np.float32)


def _computing(counts: Column, machine: Machine) -> Column:
    """Nanoseconds of one core for all instructions: the arithmetic, what is loaded for it, and all others."""
    begun = machine.core_gflops / (2 * machine.lanes)  # products of vectors in a nanosecond
    sums = np.maximum(1.0, counts[:, Count.ACCUMULATORS])
    waiting = np.where(counts[:, Count.PRODUCTS] > 0, np.maximum(1.0, machine.in_flight / sums), 1.0)
    arithmetic = counts[:, Count.ARITHMETIC] * waiting + DIVIDING * counts[:, Count.DIVIDES]
    loaded = counts[:, Count.LOADED] / _levels(machine)[0].gbytes_per_sec
    return np.asarray((arithmetic + counts[:, Count.INSTRUCTIONS] / PIPES) / begun + loaded)


def _moving(moved: Column, machine: Machine) -> Column:
    """Nanoseconds of one core for the lines that each cache lacks: the next level has to give them."""
    lines, left, distinct, apart = np.moveaxis(moved, 2, 0)
    total = np.zeros(len(moved))
    for cache, behind in pairwise(_levels(machine)):
        kept = np.where(apart > cache.bytes, lines, left)
        missing = np.where(distinct * LINE_BYTES <= cache.bytes, distinct, kept)
        total += missing.sum(axis=1) * LINE_BYTES / behind.gbytes_per_sec
    return total


def _levels(machine: Machine) -> tuple[Cache, ...]:
    """The caches, and a core's share of memory behind them."""
    memory = Cache(bytes=2**62, gbytes_per_sec=machine.memory_gbytes_per_sec / machine.cores)
    return (*machine.caches, memory)
