"""Encodes decision vectors as points, for searchers that need distances or directions.

A tile is encoded as exponents of its extent's primes, one column per prime and loop; a list
has one column per value. Any point decodes to a well-formed decision vector, approximately
the nearest.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn.searchers.tile_factorizations import Rows, TileRule, prime_powers

Points = NDArray[np.float64]


class TileGene:
    """Encodes a tile as the exponents of each prime in each of its factors."""

    def __init__(self, choice: Choice) -> None:
        self.width = choice.width
        self._primes = prime_powers(choice.extent)
        self._rule = TileRule(choice)
        self.columns = self.width * len(self._primes)

    def encode(self, rows: Rows) -> Points:
        points = np.zeros((len(rows), self.columns))
        for index, (prime, power) in enumerate(self._primes):
            for exponent in range(1, power + 1):
                points[:, index * self.width : (index + 1) * self.width] += rows % prime**exponent == 0
        return points

    def decode(self, points: Points) -> Rows:
        rows = np.ones((len(points), self.width), dtype=np.int32)
        for index, (prime, power) in enumerate(self._primes):
            exponents = round_to_total(points[:, index * self.width : (index + 1) * self.width], power)
            rows *= np.power(prime, exponents, dtype=np.int32)
        return self._rule.repair(rows)

    def project(self, points: Points) -> Points:
        parts = [
            _onto_simplex(points[:, index * self.width : (index + 1) * self.width], power)
            for index, (_, power) in enumerate(self._primes)
        ]
        return np.hstack([np.zeros((len(points), 0)), *parts])

    def log_factor_matrix(self) -> Points:
        parts = [np.eye(self.width) * np.log2(prime) for prime, _ in self._primes]
        return np.vstack([np.zeros((0, self.width)), *parts])


class ListGene:
    """Encodes a list choice by one column per value; decoding takes the largest column."""

    def __init__(self, choice: Choice) -> None:
        weights = choice.weights or (1.0,) * len(choice.values)
        possible = [value for value, weight in zip(choice.values, weights, strict=True) if weight > 0]
        self._values = np.array(possible, dtype=np.int32)
        self.columns = len(possible)

    def encode(self, rows: Rows) -> Points:
        return np.asarray(rows == self._values, dtype=np.float64)

    def decode(self, points: Points) -> Rows:
        values: Rows = self._values[points.argmax(axis=1)]
        return values[:, None]

    def project(self, points: Points) -> Points:
        return _onto_simplex(points, 1)

    def log_factor_matrix(self) -> Points:
        return np.eye(self.columns)


class Genes:
    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.columns = 0
        # Each choice's gene, its columns of decision vectors, and those of points.
        self._genes: list[tuple[TileGene | ListGene, slice, slice]] = []
        for columns, choice in sketch.decision_slices:
            gene = TileGene(choice) if choice.kind is ChoiceKind.TILE else ListGene(choice)
            first, self.columns = self.columns, self.columns + gene.columns
            self._genes.append((gene, columns, slice(first, self.columns)))

    def encode(self, rows: Rows) -> Points:
        parts = [gene.encode(rows[:, columns]) for gene, columns, _ in self._genes]
        return np.hstack([np.zeros((len(rows), 0)), *parts])

    def decode(self, points: Points) -> Rows:
        """Return one well-formed decision vector per point; decoding reverses `encode`."""
        parts = [gene.decode(points[:, columns]) for gene, _, columns in self._genes]
        return np.hstack([np.zeros((len(points), 0), dtype=np.int32), *parts])

    def project(self, points: Points) -> Points:
        """Project onto points whose factors multiply to the extent; list shares sum to 1."""
        parts = [gene.project(points[:, columns]) for gene, _, columns in self._genes]
        return np.hstack([np.zeros((len(points), 0)), *parts])

    def log_factor_matrix(self) -> Points:
        """Return the matrix from points to log2 of tile factors (and list columns as is)."""
        parts = [gene.log_factor_matrix() for gene, _, _ in self._genes]
        return np.asarray(block_diag(np.zeros((0, 0)), *parts))


genes_of = lru_cache(maxsize=1024)(Genes)


def round_to_total(points: Points, total: int) -> Rows:
    """Return the nearest points with whole, non-negative coordinates that sum to `total`."""
    shares = _onto_simplex(points, total)
    floors = np.floor(shares + 1e-9)
    shortfall = total - floors.sum(axis=1, keepdims=True)
    by_remainder = np.argsort(floors - shares, axis=1, kind="stable")
    rank = np.argsort(by_remainder, axis=1, kind="stable")
    return np.asarray(floors + (rank < shortfall), dtype=np.int32)


def _onto_simplex(points: Points, total: int) -> Points:
    falling = -np.sort(-points, axis=1)
    excess = (falling.cumsum(axis=1) - total) / np.arange(1, points.shape[1] + 1)
    last = (falling > excess).sum(axis=1, keepdims=True) - 1
    return np.asarray(np.maximum(points - np.take_along_axis(excess, last, axis=1), 0.0))
