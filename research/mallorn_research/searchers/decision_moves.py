"""Small changes of decision vectors: a prime factor moves to another tile level, or a list
value is replaced by the next one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.learning.exploring_learner import multiply_in_blocks
from mallorn.searchers.learning.knobs import Adam, positive_weight_values
from mallorn.searchers.space import Choice, ChoiceKind, Matrix, Sketch
from mallorn.searchers.tile_factorizations import Rows, prime_powers

STAY = -1
UNLIMITED = np.iinfo(np.int32).max
NO_EDGE = np.iinfo(np.int32).min

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Direction:
    """A small change of a row: a prime factor moves, or the next list value is taken."""

    source: int  # column that loses the factor
    target: int  # column that gains it
    factor: int = 1  # the prime that moves
    limit: int = UNLIMITED  # upper limit of the target
    step: int = 0  # -1 or 1 for a list: one value down or up
    edge: int = NO_EDGE  # last value of a list, at which the step has no effect
    left: int = 0  # 1 + index of the inner product that loses the factor; 0: none


class Moves:
    """All directions (small changes) of a sketch's decision vectors, as arrays."""

    def __init__(self, sketch: Sketch) -> None:
        starts = [(choice, columns.start) for columns, choice in sketch.decision_slices]
        self._inner = [
            (slice(start + choice.inner_multiple[0], start + choice.width), choice.inner_multiple[1])
            for choice, start in starts
            if choice.inner_multiple
        ]
        begins = [columns.start for columns, _ in self._inner]
        self.directions = [d for choice, start in starts for d in _directions(choice, start, begins)]
        fields = [[d.source, d.target, d.factor, d.limit, d.step, d.edge, d.left] for d in self.directions]
        table = np.array(fields, dtype=np.int64).reshape(-1, 7)
        self._source, self._target, self._factor, self._limit, self._step, self._edge, self._left = table.T
        self._lists = {
            start: positive_weight_values(c) for c, start in starts if c.kind is not ChoiceKind.TILE
        }
        # Pairs of opposite directions, down and up: a prime at an inner level of a tile, or a list.
        outermost = {start for _, start in starts}
        index = {(d.source, d.target, d.factor, d.step): number for number, d in enumerate(self.directions)}
        pairs = [
            (number, index[d.target, d.source, d.factor, -d.step])
            for number, d in enumerate(self.directions)
            if d.step < 0 or (d.step == 0 and d.target in outermost)
        ]
        self.knobs = np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.directions)

    def legal(self, rows: Rows) -> Mask:
        spare = self._spare(rows)[:, self._left]
        return self._is_legal(rows[:, self._source], rows[:, self._target], spare, np.arange(len(self)))

    def apply(self, rows: Rows, directions: Indices) -> Rows:
        """Move each row in its chosen direction, unless that is STAY or illegal."""
        moved = rows.copy()
        line = np.flatnonzero(directions != STAY)
        way = directions[line]
        spare = self._spare(rows)[line, self._left[way]]
        may = self._is_legal(rows[line, self._source[way]], rows[line, self._target[way]], spare, way)
        line, way = line[may], way[may]
        tiled = self._step[way] == 0
        for column, values in self._lists.items():
            is_stepped = ~tiled & (self._source[way] == column)
            lines = line[is_stepped]
            index = np.searchsorted(values, moved[lines, column]) + self._step[way[is_stepped]]
            moved[lines, column] = values[np.clip(index, 0, len(values) - 1)]
        line, way = line[tiled], way[tiled]
        factor = self._factor[way].astype(np.int32)
        moved[line, self._source[way]] //= factor
        moved[line, self._target[way]] *= factor
        return moved

    def _spare(self, rows: Rows) -> Indices:
        """Return the factor by which each tile's inner product may shrink; column 0 is 0."""
        spare = [rows[:, columns].prod(axis=1) // multiple for columns, multiple in self._inner]
        return np.column_stack([np.zeros(len(rows), dtype=np.int64), *spare])

    def _is_legal(self, sources: Rows, targets: Rows, spare: Indices, way: Indices) -> Mask:
        products = targets.astype(np.int64) * self._factor[way]
        fits = (sources % self._factor[way] == 0) & (products <= self._limit[way])
        fits &= spare % self._factor[way] == 0
        return np.asarray(fits & (sources != self._edge[way]), dtype=np.bool_)


moves_of = lru_cache(maxsize=256)(Moves)


def _directions(choice: Choice, start: int, begins: list[int]) -> list[Direction]:
    if choice.kind is not ChoiceKind.TILE:
        values = positive_weight_values(choice).tolist()
        ends = ((-1, values[0]), (1, values[-1])) if len(values) > 1 else ()
        return [Direction(start, start, step=step, edge=edge) for step, edge in ends]
    last = choice.width - 1
    limit = choice.limit or choice.extent
    inner = choice.inner_multiple[0] if choice.inner_multiple else 0
    product_number = 1 + begins.index(start + inner) if choice.inner_multiple else 0
    return [
        Direction(
            start + source,
            start + target,
            prime,
            limit if target == last else UNLIMITED,
            left=product_number if target < inner <= source else 0,
        )
        for prime, _ in prime_powers(choice.extent)
        for source, target in permutations(range(choice.width), 2)
    ]


class Transitions(NamedTuple):
    """Training steps: state, direction, reward, next state and its legal directions."""

    state: Matrix
    way: Indices
    reward: Column
    after: Matrix
    legal: Mask

    def drawn(self, rng: np.random.Generator, count: int) -> "Transitions":
        lines = rng.integers(len(self.way), size=count)
        return Transitions(**{name: rows[lines] for name, rows in self._asdict().items()})


def joined(steps: Sequence[Transitions]) -> Transitions:
    return Transitions(*(np.concatenate(column) for column in zip(*steps, strict=True)))


def reward(gain: NDArray[np.floating]) -> Column:
    """Return the tanh of a difference of log speeds, so that failures do not dominate."""
    return np.asarray(np.tanh(gain), dtype=np.float64)


def measured_steps(moves: Moves, rows: Rows, features: Matrix, speed: NDArray[np.floating]) -> Transitions:
    """Return steps of one direction between two measured rows, with their rewards."""
    start = np.repeat(np.arange(len(rows)), len(moves))
    way = np.tile(np.arange(len(moves)), len(rows))
    end = _find_rows(rows, moves.apply(rows[start], way))
    pairs = np.flatnonzero((end >= 0) & (end != start))
    start, end, way = start[pairs], end[pairs], way[pairs]
    gain = reward(speed[end] - speed[start])
    return Transitions(features[start], way, gain, features[end], moves.legal(rows[end]))


def _find_rows(rows: Rows, queries: Rows) -> Indices:
    """Return the index in `rows` of each row of `queries`, -1 if it is missing."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    salt = np.random.default_rng(0).integers(2**31, size=rows.shape[1])  # a hash, checked below
    codes = rows @ salt
    order = np.argsort(codes)
    candidates = order[np.minimum(np.searchsorted(codes[order], queries @ salt), len(rows) - 1)]
    return np.where((rows[candidates] == queries).all(axis=1), candidates, -1)


Features = NDArray[np.floating]
Slope = Callable[[Column], Column]  # maps outputs to the gradient of the loss for them

KEPT = 1e-6  # columns that vary less are rounding noise


class DenseNetwork:
    """A network that maps each row to `outputs` numbers. Columns are standardised by the
    constructor's rows; constant columns are ignored."""

    def __init__(
        self,
        rows: Features,
        hidden_sizes: Sequence[int],
        outputs: int,
        rate: float,
        rng: np.random.Generator,
    ) -> None:
        spread = rows.std(axis=0)
        self._columns = np.flatnonzero(spread > KEPT)
        self._centre = rows[:, self._columns].mean(axis=0, dtype=np.float64)
        self._scale = 1 / spread[self._columns]
        sizes = [len(self._columns), *hidden_sizes, outputs]
        self._weights = [rng.normal(0, np.sqrt(2 / max(1, a)), size=(a, b)) for a, b in pairwise(sizes)]
        self._weights[-1] *= 0.1  # starts near zero
        self._biases = [np.zeros(size) for size in sizes[1:]]
        self._adam = Adam([*self._weights, *self._biases], rate)

    def __call__(self, rows: Features) -> Column:
        return self._layers(rows)[-1]

    def learn(self, rows: Features, slope: Slope) -> None:
        """Make one gradient step; `slope` returns the gradient of the loss for the outputs."""
        layers = self._layers(rows)
        error = slope(layers[-1])
        weights: list[Column] = []
        biases: list[Column] = []
        for index in reversed(range(len(self._weights))):
            weights.insert(0, multiply_in_blocks(layers[index].T, error))
            biases.insert(0, error.sum(axis=0))
            error = multiply_in_blocks(error, self._weights[index].T) * (layers[index] > 0)
        self._adam.step([*weights, *biases])

    def _layers(self, rows: Features) -> list[Column]:
        layers = [np.clip((rows[:, self._columns] - self._centre) * self._scale, -5.0, 5.0)]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            layers.append(np.maximum(0.0, multiply_in_blocks(layers[-1], weight) + bias))
        return [*layers, multiply_in_blocks(layers[-1], self._weights[-1]) + self._biases[-1]]
