"""Represents a sketch by its knobs: tile factors, innermost first, and list values."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn.searchers.tile_factorizations import Rows, divisors

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Knob:
    """A decision, such as a tile factor: the column that it sets, and its options."""

    column: int
    options: tuple[int, ...]
    rest: int  # the tile's outermost column; for a list, `column`
    extent: int  # 0 for a list
    inside: int = 0  # number of the tile's columns further inside
    multiple: int = 1  # must divide the product of this factor and those further inside


class Knobs:
    """The knobs (decisions) of one sketch in order; converts rows to indices of options.
    Setting all knobs in order to options allowed by `legal` gives a well-formed row; the
    outermost level of a tile gets the rest of the extent."""

    def __init__(self, sketch: Sketch) -> None:
        self.knobs = [knob for knob in _knobs(sketch) if knob.options]
        start: list[int] = []
        for choice in sketch.choices:
            tiled = choice.kind is ChoiceKind.TILE
            start += [choice.extent] + [1] * (choice.width - 1) if tiled else [choice.values[0]]
        self._start = np.array(start, np.int32)
        self.most = max((len(knob.options) for knob in self.knobs), default=1)
        self.exists = np.zeros((len(self.knobs), self.most), dtype=np.bool_)
        self._options = np.ones((len(self.knobs), self.most), dtype=np.int32)
        for index, knob in enumerate(self.knobs):
            self.exists[index, : len(knob.options)] = True
            self._options[index, : len(knob.options)] = knob.options

    def __len__(self) -> int:
        return len(self.knobs)

    def undecided_rows(self, count: int) -> Rows:
        """Return undecided rows, with each tile's full extent at the outermost level."""
        return np.tile(self._start, (count, 1))

    def legal(self, index: int, rows: Rows) -> Mask:
        """Return a mask of legal options of knob `index`, given the knobs set before."""
        if not self.knobs[index].extent:
            return np.tile(self.exists[index], (len(rows), 1))
        knob = self.knobs[index]
        divides = rows[:, knob.rest, None] % self._options[index] == 0
        inner = rows[:, knob.column + 1 : knob.column + 1 + knob.inside].prod(axis=1, keepdims=True)
        return np.asarray(divides & (inner * self._options[index] % knob.multiple == 0) & self.exists[index])

    def set(self, index: int, rows: Rows, options: Indices) -> None:
        """Set knob `index` of each row, in place, to its option at index `place`."""
        knob, value = self.knobs[index], self._options[index, options]
        rows[:, knob.column] = value
        if knob.extent:
            rows[:, knob.rest] //= value

    def option_indices(self, rows: Rows) -> Indices:
        """Return the index of each knob's option in each row (or of the next lower one)."""
        places = [
            np.searchsorted(knob.options, rows[:, knob.column], side="right") - 1 for knob in self.knobs
        ]
        return np.maximum(0, np.array(places, dtype=np.int64).reshape(len(self), len(rows)).T)


def draw_legal_options(rng: np.random.Generator, logits: Column, legal: Mask) -> Indices:
    """Draw one legal option per row by softmax of the logits (Gumbel trick)."""
    noisy = np.where(legal, logits + rng.gumbel(size=legal.shape), -np.inf)
    return np.asarray(noisy.argmax(axis=1), dtype=np.int64)


knobs_of = lru_cache(maxsize=256)(Knobs)


def _knobs(sketch: Sketch) -> list[Knob]:
    knobs: list[Knob] = []
    for columns, choice in sketch.decision_slices:
        if choice.kind is ChoiceKind.TILE:
            every = tuple(divisors(choice.extent))
            innermost = tuple(option for option in every if option <= (choice.limit or choice.extent))
            last = choice.width - 1
            place, multiple = choice.inner_multiple or (0, 1)
            knobs += [
                Knob(
                    columns.start + level,
                    innermost if level == last else every,
                    columns.start,
                    choice.extent,
                    last - level,
                    multiple if level == place else 1,
                )
                for level in range(last, 0, -1)
            ]
        else:
            knobs.append(
                Knob(columns.start, tuple(positive_weight_values(choice).tolist()), columns.start, 0)
            )
    return knobs


def positive_weight_values(choice: Choice) -> NDArray[np.int32]:
    """Return the values of a list that have a positive weight, ascending."""
    weights = choice.weights or (1.0,) * len(choice.values)
    values = {value for value, weight in zip(choice.values, weights, strict=True) if weight > 0}
    return np.array(sorted(values), dtype=np.int32)


SMOOTHING = 0.2  # uniform share of a distribution fit by counting


@dataclass(frozen=True, slots=True)
class Draw:
    """Decision vectors of one sketch, with each knob's drawn option and legal options."""

    rows: Rows
    places: Indices  # rows x knobs
    legal: Mask  # rows x knobs x options


class KnobDistributions:
    """Logits of each knob's options; rows are drawn knob by knob from the legal options."""

    def __init__(self, knobs: Knobs, logits: Column, rate: float) -> None:
        self.knobs, self.logits = knobs, logits
        self._adam = Adam([self.logits], rate)

    def draw(self, rng: np.random.Generator, count: int) -> Draw:
        rows = self.knobs.undecided_rows(count)
        places = np.zeros((count, len(self.knobs)), dtype=np.int64)
        legal = np.zeros((count, *self.logits.shape), dtype=np.bool_)
        for index in range(len(self.knobs)):
            legal[:, index] = self.knobs.legal(index, rows)
            places[:, index] = draw_legal_options(rng, self.logits[index], legal[:, index])
            self.knobs.set(index, rows, places[:, index])
        return Draw(rows, places, legal)

    def learn(self, draw: Draw, advantage: Column, entropy: float) -> None:
        """Make one policy-gradient step; `entropy` is the weight of the entropy bonus."""
        chances = softmax(self.logits, draw.legal)
        logs = np.log(np.maximum(chances, 1e-12))
        surprise = -(chances * logs).sum(axis=2, keepdims=True)
        slope = -np.einsum("n,nko->ko", advantage, chances)
        np.add.at(slope, (np.arange(len(self.knobs)), draw.places), advantage[:, None])
        slope -= entropy * (chances * (logs + surprise)).sum(axis=0)
        self._adam.step([-slope / max(1, len(advantage))])


def softmax(logits: Column, legal: Mask) -> Column:
    """Return the softmax over the last axis, with 0 for illegal options."""
    legal_logits = np.where(legal, logits, -np.inf)
    powers = np.exp(legal_logits - legal_logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def frequency_logits(knobs: Knobs, rows: Rows, weight: Column) -> Column:
    """Return logits of options' weighted frequencies, mixed with a uniform distribution."""
    uniform = knobs.exists / np.maximum(1, knobs.exists.sum(axis=1, keepdims=True))
    counts = np.zeros(knobs.exists.shape)
    np.add.at(counts, (np.arange(len(knobs)), knobs.option_indices(rows)), weight[:, None])
    total = weight.sum()
    share = counts / total if total else uniform
    return np.asarray(np.log(np.maximum(SMOOTHING * uniform + (1 - SMOOTHING) * share, 1e-12)))


Parameter = NDArray[np.floating]

DECAY, SQUARE_DECAY, TINY = 0.9, 0.99, 1e-8


class Adam:
    """The Adam optimizer; updates parameters in place."""

    def __init__(self, parameters: Sequence[Parameter], rate: float) -> None:
        self._parameters, self._rate, self._steps = parameters, rate, 0
        self._mean = [np.zeros_like(parameter) for parameter in parameters]
        self._square = [np.zeros_like(parameter) for parameter in parameters]

    def step(self, gradients: Sequence[Parameter], share: float = 1.0) -> None:
        """Make one bias-corrected step with the learning rate multiplied by `share`."""
        self._steps += 1
        rate = self._rate * share * np.sqrt(1 - SQUARE_DECAY**self._steps) / (1 - DECAY**self._steps)
        moments = zip(self._parameters, gradients, self._mean, self._square, strict=True)
        for parameter, gradient, mean, square in moments:
            mean += (1 - DECAY) * (gradient - mean)
            square += (1 - SQUARE_DECAY) * (gradient**2 - square)
            parameter -= self._change(parameter, rate, mean, np.sqrt(square) + TINY)

    def _change(self, parameter: Parameter, rate: float, mean: Parameter, root: Parameter) -> Parameter:
        return rate * mean / root
