"""Draws schedules decision by decision, as a model of good ones would decide; cost models choose."""

from dataclasses import dataclass

import numpy as np

from costmodels.base import Column
from costmodels.decision_model_interfaces import ProposesDecisions
from costmodels.partial_schedules import prefixes
from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.knobs import KnobOrder, Mask, ordered, pick
from searchers.learning.scorer import Scorer
from searchers.tile_factorizations import Rows

GENERATED = "generated"
BRED = "bred"


@dataclass(eq=False, kw_only=True)
class Generator(Learner):
    """Draws from the model of decisions, and breeds what the cost model likes best of that.

    After TLM (OSDI'24), as the cost model `generator` tells. All sketches are drawn from alike, a part with
    likings that count double, so that the likeliest schedules are among them. Then a few generations of
    mutated candidates of the pool, the most promising ones likelier. A model that proposes no decisions,
    and `learning` switched off, leave draws at random: the twin that shows what generating brings.
    """

    drawn: int = 384  # schedules, over all sketches
    sharpness: float = 2.0
    generations: int = 3
    greed: float = 4.0
    learning: bool = True

    def explore(self, scout: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        sketches = scout.space.sketches
        each = max(8, self.drawn // len(sketches))
        scout.look(
            [(sketch, self._draws(ordered(sketch), scout, each, rng)) for sketch in sketches], GENERATED
        )
        left = max(0, self.considered - len(scout))
        for _ in range(self.generations):
            starts = scout.starts(left // self.generations, self.greed, rng)
            parents = [each for sight in starts for each in sight.sketch.candidates(sight.rows.tolist())]
            scout.look_at(scout.space.mutate_all(rng, parents), BRED)

    def _draws(self, knobs: KnobOrder, scout: Scorer, count: int, rng: np.random.Generator) -> Rows:
        """Whole rows; half are drawn with sharper likings."""
        rows = knobs.knobs.blank(count)
        sharpness = np.where(np.arange(count) % 2, self.sharpness, 1.0)[:, None]
        for decided, at in enumerate(knobs.order):
            legal = knobs.knobs.legal(at, rows)
            logits = sharpness * self._liking(knobs, decided + 1, rows, legal, scout)
            knobs.knobs.set(at, rows, pick(rng, logits, legal))
        return rows

    def _liking(self, knobs: KnobOrder, decided: int, rows: Rows, legal: Mask, scout: Scorer) -> Column:
        """How much each legal option of the next decision is liked."""
        liking = np.zeros(legal.shape)
        if self.learning and isinstance(scout.model, ProposesDecisions):
            line, place = np.nonzero(legal)
            tried = rows[line]
            knobs.knobs.set(knobs.order[decided - 1], tried, place)
            candidates = knobs.sketch.candidates(tried.tolist())
            open_rows = prefixes(scout.space.features(candidates), knobs.step(decided))
            liking[line, place] = scout.model.liking(open_rows)
        return liking
