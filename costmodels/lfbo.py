"""Asks how likely a candidate is among the fastest of its task, by likelihood-free optimisation (LFBO)."""

from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from costmodels.ensemble_spread import (
    FEWEST_JUDGED,
    UNKNOWN,
    Weights,
    draws,
    finite,
    ignorant,
    importance,
    pooled,
    variance_share,
)
from costmodels.forest import MEMBERS, Trees, grown
from costmodels.labels import timed
from costmodels.metrics import members
from costmodels.serialization import pack, unpack
from costmodels.views import check_rows

GAMMA: Final = 0.1  # share of a task's rows that count as fast
LEAST_SLOPE: Final = 0.02  # so that scores of one sign keep their order


class Chances(NamedTuple):
    """For each row the share of its weight that says fast, and its weight."""

    targets: Vector
    weights: Weights


class LFBO(CostModel):
    """Random trees tell the fastest tenth of each task from all its rows; how much faster is the weight.

    What a row gains over the tenth's slowest counts as a vote for fast beside one for slow that every row
    has, so that the chance orders candidates by the improvement that is expected of them. Among slow ones
    it says nothing. A line through rows left out maps it to labels.
    """

    KIND: ClassVar[str] = "lfbo"

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._parts: tuple[Trees, ...] = ()
        self._slope, self._offset, self._share, self._noise = 1.0, 0.0, 1.0, UNKNOWN

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._forget()
        if not len(labels):
            return
        rng, rows = np.random.default_rng(seed), finite(features)
        drawn = draws(rng, len(labels), MEMBERS)
        self._parts = self._grown(rows, labels, groups, drawn, rng)
        unseen = (drawn == 0).astype(np.float64)
        self._slope, self._offset = line(self._raw(rows), labels, importance(labels) * unseen)
        share, rest = variance_share(self._opinions(rows), labels, unseen)
        self._share, self._noise = share, rest**0.5

    def _grown(
        self, rows: Matrix, labels: Vector, groups: Groups, drawn: Groups, rng: np.random.Generator
    ) -> tuple[Trees, ...]:
        """Trees, a member of each part for every draw."""
        targets, weights = chances(labels, groups)
        return (grown(rows, targets, drawn * weights, rng),)

    def _raw(self, rows: Matrix) -> Matrix:
        """The score of each member, before it becomes a label."""
        return self._parts[0].opinions(rows)

    def _opinions(self, rows: Matrix) -> NDArray[np.float64]:
        return self._offset + self._slope * self._raw(rows).astype(np.float64)

    def predict(self, features: Matrix) -> Prediction:
        if not self._parts:
            return ignorant(len(features))
        return pooled(self._opinions(finite(features)), self._noise, self._share)

    def save(self) -> bytes:
        numbers = {"slope": self._slope, "offset": self._offset, "share": self._share, "noise": self._noise}
        arrays: dict[str, NDArray[Any]] = {
            f"{at}.{name}": array
            for at, trees in enumerate(self._parts)
            for name, array in trees._asdict().items()
        }
        return pack(self.KIND, {**numbers, "parts": len(self._parts)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._slope, model._offset = numbers["slope"], numbers["offset"]
        model._share, model._noise = numbers["share"], numbers["noise"]
        model._parts = tuple(
            Trees(*(arrays[f"{at}.{name}"] for name in Trees._fields)) for at in range(numbers["parts"])
        )
        return model


def chances(labels: Vector, groups: Groups) -> Chances:
    """Gains over the slowest of the fast are on one scale in all groups: their mean is one vote."""
    gain = np.zeros(len(labels))
    for lines in members(groups):
        ran = lines[timed(labels[lines])]
        if len(ran):
            least = np.quantile(labels[ran].astype(np.float64), 1 - GAMMA)
            gain[ran] = np.maximum(0.0, labels[ran] - least)
            fast = ran[gain[ran] > 0]
            gain[fast] /= gain[fast].mean() if len(fast) else 1.0
    return Chances((gain / (1 + gain)).astype(np.float32), 1 + gain)


def line(raw: Matrix, labels: Vector, left_out: Weights) -> tuple[float, float]:
    """Slope and offset of labels over the mean score of the members that did not see the row."""
    rows = np.flatnonzero(left_out.any(axis=0))
    if len(rows) < FEWEST_JUDGED:
        return 1.0, float(np.mean(labels - raw.mean(axis=0)))
    unseen, weight = (left_out > 0)[:, rows], left_out.max(axis=0)[rows]
    together = (raw[:, rows] * unseen).sum(axis=0) / unseen.sum(axis=0)
    truth = labels[rows].astype(np.float64)
    (own, shared), _ = np.cov(together, truth, aweights=weight, ddof=0)
    slope = max(LEAST_SLOPE, float(shared / own)) if own else 1.0
    return slope, float(np.average(truth - slope * together, weights=weight))


SHARPNESS: Final = 4.0  # a row that is twice as slow counts a sixteenth
LEAST: Final = 0.02  # of the best row's weight
CHANCE: Final = 0.3  # label units that certainty of being among the fastest is worth


class ForestPlusLFBO(LFBO):
    """Random trees on labels, where slow rows hardly weigh, plus those of `lfbo`.

    The labels order all candidates, so that a search finds its way from afar; the chance orders the head.
    """

    KIND: ClassVar[str] = "headfirst"

    def _grown(
        self, rows: Matrix, labels: Vector, groups: Groups, drawn: Groups, rng: np.random.Generator
    ) -> tuple[Trees, ...]:
        sharp = np.exp(SHARPNESS * labels.astype(np.float64)) + LEAST
        speed = grown(rows, labels, drawn * sharp, rng, min_samples_leaf=1)
        return (speed, *super()._grown(rows, labels, groups, drawn, rng))

    def _raw(self, rows: Matrix) -> Matrix:
        speed, chance = (trees.opinions(rows) for trees in self._parts)
        return speed + np.float32(CHANCE) * chance
