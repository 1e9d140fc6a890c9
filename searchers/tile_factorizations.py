"""Samples, mutates and checks tile choices (ordered factorisations) as arrays."""

from functools import lru_cache
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from mallorn.searchers.space import Choice

Rows = NDArray[np.int32]

MAX_REDRAWS = 8


class TileRule:
    """A TILE choice: `width` factors whose product is the extent, the last of them limited.
    With `inner_multiple` (place, n), n divides the product of factors from that place."""

    def __init__(self, choice: Choice) -> None:
        self.width = choice.width
        self.extent = choice.extent
        self.limit = choice.limit or choice.extent
        self._inner, self._multiple = choice.inner_multiple or (0, 1)
        self._primes = prime_powers(choice.extent)
        self._sources, self._targets, self._factors = _factor_moves(choice.extent, choice.width)

    @property
    def has_alternatives(self) -> bool:
        if self.width == 2:
            return any(factor <= self.limit for factor in self._factors)
        return self.width > 2 and self.extent > 1

    def sample(self, rng: np.random.Generator, count: int) -> Rows:
        """Draw tilings uniformly; after MAX_REDRAWS draws, repair rows beyond the limits."""
        rows = self._draw(rng, count)
        for _ in range(MAX_REDRAWS):
            is_over = np.flatnonzero(~self._within_limits(rows))
            if not is_over.size:
                return rows
            rows[is_over] = self._draw(rng, is_over.size)
        return self.repair(rows)

    def mutate(self, rng: np.random.Generator, rows: Rows) -> Rows:
        """Move a prime factor of each row to another loop, drawn from the legal moves."""
        legal = rows[:, self._sources] % self._factors == 0
        products = rows[:, -1:].astype(np.int64) * self._factors
        legal &= (self._targets != self.width - 1) | (products <= self.limit)
        spare = rows[:, self._inner :].prod(axis=1, keepdims=True) // self._multiple
        leaves = (self._sources >= self._inner) & (self._targets < self._inner)
        legal &= ~leaves | (spare % self._factors == 0)
        pick = np.floor(rng.random(len(rows)) * legal.sum(axis=1)).astype(np.int64)
        move = (legal.cumsum(axis=1) > pick[:, None]).argmax(axis=1)
        changed, line = rows.copy(), np.arange(len(rows))
        changed[line, self._sources[move]] //= self._factors[move]
        changed[line, self._targets[move]] *= self._factors[move]
        return changed

    def well_formed(self, rows: Rows) -> NDArray[np.bool_]:
        positive = (rows > 0).all(axis=1)
        exact = rows.astype(np.float64).prod(axis=1) == self.extent
        return np.asarray(positive & exact & self._within_limits(rows))

    def _within_limits(self, rows: Rows) -> NDArray[np.bool_]:
        inner = rows[:, self._inner :].prod(axis=1)
        return np.asarray((rows[:, -1] <= self.limit) & (inner % self._multiple == 0))

    def _draw(self, rng: np.random.Generator, count: int) -> Rows:
        rows = np.ones((count, self.width), dtype=np.int32)
        for prime, power in self._primes:
            table = compositions(power, self.width)
            exponents = table[rng.integers(len(table), size=count)]
            rows *= np.power(prime, exponents, dtype=np.int32)
        return rows

    def repair(self, rows: Rows) -> Rows:
        """Move factors outwards to meet the limit, then inwards for `inner_multiple`, in place."""
        for prime, power in reversed(self._primes):
            for _ in range(power):
                is_over = (rows[:, -1] > self.limit) & (rows[:, -1] % prime == 0)
                rows[is_over, -1] //= prime
                rows[is_over, 0] *= prime
        for prime, power in prime_powers(self._multiple):
            for source in [*range(self._inner)] * power:
                short = rows[:, self._inner :].prod(axis=1) % prime**power != 0
                moved = short & (rows[:, source] % prime == 0)
                rows[moved, source] //= prime
                rows[moved, self._inner] *= prime
        return rows


@lru_cache(maxsize=4096)
def prime_powers(extent: int) -> tuple[tuple[int, int], ...]:
    """Return the prime factorisation of an extent, smallest prime first."""
    powers: dict[int, int] = {}
    prime, quotient = 2, extent
    while prime * prime <= quotient:
        while quotient % prime == 0:
            powers[prime] = powers.get(prime, 0) + 1
            quotient //= prime
        prime += 1
    if quotient > 1:
        powers[quotient] = powers.get(quotient, 0) + 1
    return tuple(powers.items())


@lru_cache(maxsize=256)
def compositions(total: int, parts: int) -> Rows:
    """Return all ways to write `total` as an ordered sum of `parts` numbers >= 0."""
    bars = list(combinations(range(total + parts - 1), parts - 1))
    inner = np.array(bars, dtype=np.int32).reshape(len(bars), parts - 1)
    ends = np.full((len(bars), 1), total + parts - 1, dtype=np.int32)
    bounds = np.hstack([np.full_like(ends, -1), inner, ends])
    return bounds[:, 1:] - bounds[:, :-1] - 1


def tilings(extent: int, width: int) -> Rows:
    """Return every ordered factorisation of an extent, one per row."""
    rows = np.ones((1, width), dtype=np.int32)
    for prime, power in prime_powers(extent):
        factors = np.power(prime, compositions(power, width), dtype=np.int32)
        rows = (rows[:, None, :] * factors).reshape(-1, width)
    return rows


def divisors(extent: int) -> list[int]:
    products = [1]
    for prime, power in prime_powers(extent):
        products = [base * prime**exponent for base in products for exponent in range(power + 1)]
    return sorted(products)


def largest_factor(extent: int, limit: int) -> int:
    """Return the largest divisor that is at most `limit`; 1 if `limit` is below 1."""
    return max(factor for factor in divisors(extent) if factor <= max(1, limit))


@lru_cache(maxsize=1024)
def _factor_moves(extent: int, width: int) -> tuple[Rows, Rows, Rows]:
    pairs = permutations(range(width), 2)
    moves = [(source, target, factor) for source, target in pairs for factor in divisors(extent)[1:]]
    table = np.array(moves, dtype=np.int32).reshape(len(moves), 3)
    return table[:, 0], table[:, 1], table[:, 2]
