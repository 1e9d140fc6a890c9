"""The time model of a GPU's sketch that describes itself, with a search for its best rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import Column
from mallorn.kinds.cuda.compute_capability import SHARED_RESERVED, WARP_SIZE
from mallorn.kinds.cuda.times.kernel_time import KernelWork, kernel_us
from mallorn.searchers.decision_space import SketchRules
from mallorn.searchers.loop_nest import Access, Nest
from mallorn.searchers.sketch_blocks import PlacedChoice, placed_choices
from mallorn.searchers.space import ChoiceKind, Sketch
from mallorn.searchers.tile_factorizations import Rows, tilings

_EXHAUSTIVE: Final = 20_000  # combinations that are all tried
_STARTS, _KEPT, _SWEEPS = 2_000, 24, 4
_SEED: Final = 0
_USUAL_THREADS: Final = 192
UNKNOWN_US: Final = 1e8  # times of a kind without a model only express an order


class GpuModel(ABC):
    """Estimates the times of a sketch's candidates on one machine."""

    @abstractmethod
    def time_us(self, rows: Rows) -> Column | None:
        """Return the estimated time of each decision vector; None if no time is known."""

    @abstractmethod
    def best(self, count: int) -> tuple[Rows, Column]:
        """Return about `count` good decision vectors, and their estimated times."""


class SketchModel(GpuModel):
    """Estimates times of a sketch's candidates. Subclasses describe their kernels."""

    def __init__(self, sketch: Sketch, nests: Sequence[Nest], machine: Machine) -> None:
        self.sketch, self.nests, self.machine = sketch, nests, machine
        self.facts = sketch.facts
        self._columns: dict[str, int] = {}
        self._places: dict[str, PlacedChoice] = {}
        for name, place in zip(self.facts.get("choices", ()), placed_choices(sketch), strict=True):
            title, _, factors = name.partition(": ")
            self._places[title] = place
            if place.choice.kind is not ChoiceKind.TILE:
                self._columns[title] = place.start
            for offset, factor in enumerate(factors.split()):
                self._columns[f"{title} {factor}"] = place.start + offset

    @abstractmethod
    def kernel(self, choices: "Choices") -> KernelWork:
        """Return the kernels of candidates with these choices."""

    def kernel_of(self, rows: Rows) -> KernelWork:
        """Return the kernels of these decision vectors."""
        return self.kernel(Choices(rows, self._columns, self._places))

    def extent(self, title: str) -> int:
        """Return the product of a tile's factors; 1 if the sketch has no such tile."""
        return self._places[title].choice.extent if title in self._places else 1

    @property
    def largest_sum(self) -> Nest | None:
        """The loops of the block that sums most; None if unknown."""
        sums = [nest for nest in self.nests if any(axis.reduced for axis in nest.axes)]
        return max(sums, key=lambda nest: prod(nest.extents), default=None)

    def results_and_depth(self) -> tuple[float, float]:
        """Return the results of the block that sums most, and the terms of each."""
        if self.largest_sum is None:
            return 1024.0, 1024.0
        depth = prod(axis.extent for axis in self.largest_sum.axes if axis.reduced)
        return float(prod(self.largest_sum.extents) // depth), float(depth)

    def repeats(self, points: float) -> float:
        """Return how often the program's loops repeat a product of so many multiplications."""
        all_points = prod(self.largest_sum.extents) if self.largest_sum else 0
        return max(1.0, float(round(all_points / points)))

    def memory_bytes(self) -> float:
        """Return the bytes of the program's inputs and results."""
        inputs = {
            (read.shape, read.element_bytes): read
            for nest in self.nests
            for read in nest.reads
            if not read.made
        }
        results = [nest.write for nest in self.nests[-1:]]
        return sum(map(size_bytes, [*inputs.values(), *results]))

    def time_us(self, rows: Rows) -> Column | None:
        return self._time_us(rows)

    def _time_us(self, rows: Rows) -> Column:
        limit = self.machine.caches[0].bytes - SHARED_RESERVED
        return kernel_us(self.kernel_of(rows), self.machine, limit)

    def best(self, count: int) -> tuple[Rows, Column]:
        """Return up to `count` rows with least estimated times, best first, and the times.

        Few combinations are all tried. Of many, one choice after the other takes its best
        values, from several of the best random rows.
        """
        rules = SketchRules(self.sketch)
        tables = [
            table[rule.well_formed(table)]
            for place, rule in zip(placed_choices(self.sketch), rules.rules, strict=True)
            for table in [
                tilings(place.choice.extent, place.choice.width)
                if place.choice.kind is ChoiceKind.TILE
                else np.array(place.choice.values, dtype=np.int32)[:, None]
            ]
        ]
        if prod(map(len, tables)) <= _EXHAUSTIVE:
            picks = np.indices([len(table) for table in tables]).reshape(len(tables), -1)
            rows = np.hstack([table[pick] for table, pick in zip(tables, picks, strict=True)])
            return self._least(rows, count)
        starts = rules.sample(np.random.default_rng(_SEED), _STARTS)
        rows, us = self._least(starts, max(count, _KEPT))
        for _ in range(_SWEEPS):
            for columns, table in zip(rules.columns, tables, strict=True):
                varied = np.repeat(rows[:_KEPT], len(table), axis=0)
                varied[:, columns] = np.tile(table, (len(rows[:_KEPT]), 1))
                rows, us = self._least(np.concatenate([rows, varied]), max(count, _KEPT))
        return rows[:count], us[:count]

    def _least(self, rows: Rows, count: int) -> tuple[Rows, Column]:
        rows = np.unique(rows, axis=0).astype(np.int32)
        us = self._time_us(rows)
        first = np.argsort(us, kind="stable")[:count]
        return rows[first], us[first]


class UnknownKind(SketchModel):
    """Guesses for a kind without a model: some 192 threads per block and the widest vectors."""

    def kernel(self, choices: "Choices") -> KernelWork:
        raise NotImplementedError

    def time_us(self, rows: Rows) -> Column | None:
        return None

    def _time_us(self, rows: Rows) -> Column:
        choices = Choices(rows, self._columns, self._places)
        threads, vectors = choices.ones(), choices.ones()
        for name in self._columns:
            if "thread" in name or "warp" in name:
                threads *= choices[name] * (WARP_SIZE if "warp" in name else 1)
            if "vector" in name or "lanes" in name:
                vectors *= choices[name]
        distance = np.abs(np.log2(threads / _USUAL_THREADS))
        return np.asarray(UNKNOWN_US * (1 + distance + 1 / vectors))


class Choices:
    """Values of candidates' choices by name, as `rows warps`; 1 if a sketch lacks one."""

    def __init__(self, rows: Rows, columns: dict[str, int], places: dict[str, PlacedChoice]) -> None:
        self._rows, self._columns, self._places = rows, columns, places

    def __getitem__(self, name: str) -> Column:
        if name not in self._columns:
            return self.ones()
        values = self._rows[:, self._columns[name]]
        choice = self._places[name].choice if name in self._places else None
        if choice is None or choice.kind is ChoiceKind.TILE:
            return np.asarray(values, dtype=np.float64)
        return np.array(choice.labels or choice.values, dtype=np.float64)[values]

    def ones(self) -> Column:
        return np.ones(len(self._rows))


def size_bytes(access: Access) -> float:
    return prod(access.shape) * access.element_bytes
