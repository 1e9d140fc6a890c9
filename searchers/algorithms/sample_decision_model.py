"""Sample schedules decision by decision from a model of good ones; cost models choose."""

from dataclasses import dataclass

import numpy as np

from costmodels.base import Column
from costmodels.decision_columns import ProposesDecisions, prefixes
from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.knobs import KnobOrder, Mask, ordered, pick
from searchers.learning.scorer import Scorer
from searchers.tile_factorizations import Rows

GENERATED = "generated"
BRED = "bred"


@dataclass(eq=False, kw_only=True)
class Generator(Learner):
    """Samples schedules from a model of decisions, then mutates the best by the cost model.

    After TLM (OSDI'24); see the cost model `generator`. All sketches get equally many samples;
    half of them use sharpened logits, so that the likeliest schedules are included. Then a few
    generations of mutants follow, with parents drawn by score. If the model proposes no
    decisions, or `learning` is off, samples are random; this variant shows the benefit of the
    model.
    """

    drawn: int = 384  # sampled schedules over all sketches
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
        """Return complete rows; half are sampled with sharpened logits."""
        rows = knobs.knobs.blank(count)
        sharpness = np.where(np.arange(count) % 2, self.sharpness, 1.0)[:, None]
        for decided, knob in enumerate(knobs.order):
            legal = knobs.knobs.legal(knob, rows)
            logits = sharpness * self._liking(knobs, decided + 1, rows, legal, scout)
            knobs.knobs.set(knob, rows, pick(rng, logits, legal))
        return rows

    def _liking(self, knobs: KnobOrder, decided: int, rows: Rows, legal: Mask, scout: Scorer) -> Column:
        """Return the logit of each legal option of the next decision; 0 for illegal ones."""
        liking = np.zeros(legal.shape)
        if self.learning and isinstance(scout.model, ProposesDecisions):
            line, place = np.nonzero(legal)
            tried = rows[line]
            knobs.knobs.set(knobs.order[decided - 1], tried, place)
            candidates = knobs.sketch.candidates(tried.tolist())
            open_rows = prefixes(scout.space.features(candidates), knobs.step(decided))
            liking[line, place] = scout.model.rate_last_decision(open_rows)
        return liking
