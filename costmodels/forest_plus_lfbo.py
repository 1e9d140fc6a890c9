"""A forest that orders the fast first: how fast a candidate is, and its chance to be among the fastest."""

from typing import ClassVar, Final

import numpy as np

from costmodels.base import Groups, Matrix, Vector
from costmodels.forest import Trees, grown
from costmodels.lfbo import LFBO

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
