"""Beam search over decisions by the value of what is decided so far: nothing is measured on the way."""

from dataclasses import dataclass

import numpy as np

from costmodels.base import Column, Indices
from costmodels.decision_model_interfaces import ValuesPrefixes
from costmodels.partial_schedules import prefixes
from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.knobs import KnobOrder, ordered
from searchers.learning.scorer import Scorer
from searchers.tile_factorizations import Rows

BEAM = "beam"


@dataclass(eq=False, kw_only=True)
class Beam(Learner):
    """Decides all sketches knob by knob, innermost tiles first, and keeps the prefixes of most value.

    After "Value Learning for Throughput Optimization of Deep Neural Networks" (MLSys'21). Half of a beam are
    the best prefixes, half are drawn by their values, so that its ends are no twins; all ends are priced and
    join the pool. A model that knows no values of prefixes prices a few random completions of each, and the
    mean of the best two stands for it; they join the pool too. That is what the paper compares itself with.

    Where it differs: the paper takes the one schedule at the end. Here the cost model and the sampler choose
    a batch from the ends of the beam, which is measured, and the next round's values stand on more. With
    `learning` off all prefixes are worth the same: the twin that shows what values bring.
    """

    width: int = 64
    options: int = 8  # of a knob, that each prefix of a full beam tries
    completions: int = 4
    temperature: float = 0.3
    learning: bool = True

    def explore(self, scout: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        sketches = scout.space.sketches
        budget = max(1, (self.considered - len(scout)) // len(sketches))
        ends = []
        for sketch in sketches:
            knobs = ordered(sketch)
            prices = self.learning and not isinstance(scout.model, ValuesPrefixes)
            looks = self.completions * (len(knobs) + 1) if prices else 1
            width = max(2, min(self.width, budget // (looks * self.options)))
            ends.append((sketch, self._ends(knobs, scout, width, rng)))
        scout.look(ends, BEAM)

    def _ends(self, knobs: KnobOrder, scout: Scorer, width: int, rng: np.random.Generator) -> Rows:
        """What the last decisions of the beam lead to."""
        rows = knobs.knobs.blank(1)
        for decided, at in enumerate(knobs.order):
            if len(rows) > width:
                rows = rows[self._kept(self._worth(knobs, decided, rows, scout, rng), width, rng)]
            rows = self._expanded(knobs, at, rows, width * self.options, rng)
        return rows

    def _expanded(self, knobs: KnobOrder, at: int, rows: Rows, most: int, rng: np.random.Generator) -> Rows:
        """Every row with each of its options of a knob; some at random where there are too many."""
        legal = knobs.knobs.legal(at, rows)
        chance = np.where(legal, rng.random(legal.shape), 2.0)
        kept = legal & (chance.argsort(axis=1).argsort(axis=1) < max(1, most // len(rows)))
        line, place = np.nonzero(kept)
        more = rows[line]
        knobs.knobs.set(at, more, place)
        return more

    def _kept(self, worth: Column, width: int, rng: np.random.Generator) -> Indices:
        best = np.argsort(-worth, kind="stable")
        first, rest = best[: width // 2], best[width // 2 :]
        drawn = worth[rest] + self.temperature * rng.gumbel(size=len(rest))
        return np.concatenate([first, rest[np.argsort(-drawn, kind="stable")[: width - len(first)]]])

    def _worth(
        self, knobs: KnobOrder, decided: int, rows: Rows, scout: Scorer, rng: np.random.Generator
    ) -> Column:
        if not self.learning:
            return rng.random(len(rows))
        if isinstance(scout.model, ValuesPrefixes):
            seen = scout.space.features(knobs.sketch.candidates(rows.tolist()))
            return scout.model.value(prefixes(seen, knobs.step(decided))).astype(np.float64)
        # Score each prefix by the mean of the best two of a few random completions.
        whole = np.repeat(rows, self.completions, axis=0)
        for at in knobs.order[decided:]:
            legal = knobs.knobs.legal(at, whole)
            drawn = np.where(legal, rng.random(legal.shape), -1.0)
            knobs.knobs.set(at, whole, drawn.argmax(axis=1))
        (sight,) = scout.look([(knobs.sketch, whole)], BEAM)
        each = np.sort(sight.promise.reshape(len(rows), self.completions), axis=1)
        return np.asarray(each[:, -2:].mean(axis=1))
