"""Samples schedules from a model of good decisions; a cost model selects among them."""

from dataclasses import dataclass

import numpy as np

from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, Scorer
from mallorn.searchers.learning.knobs import draw_legal_options
from mallorn.searchers.tile_factorizations import Rows
from mallorn_research.costmodels.decision_prefixes import ProposesDecisions, mask_undecided_columns
from mallorn_research.searchers.knob_order import KnobOrder, knob_order_of

GENERATED = "generated"
BRED = "bred"


@dataclass(eq=False, kw_only=True)
class Generator(Learner):
    """Samples schedules from a model of decisions, then mutates the best by the cost model.

    After TLM (OSDI'24); see the cost model `generator`. All sketches get equally many
    samples; half of them use sharpened logits, so that the likeliest schedules are
    included. Then a few generations of mutants follow, with parents drawn by score. If the
    model proposes no decisions, or `learning` is off, samples are random.
    """

    drawn: int = 384  # sampled schedules over all sketches
    sharpness: float = 2.0
    generations: int = 3
    greed: float = 4.0

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        sketches = scorer.space.sketches
        count = max(8, self.drawn // len(sketches))
        scorer.score_rows(
            [(sketch, self._sample(knob_order_of(sketch), scorer, count, rng)) for sketch in sketches],
            GENERATED,
        )
        left = max(0, self.considered - len(scorer))
        for _ in range(self.generations):
            starts = scorer.draw_start_rows(left // self.generations, self.greed, rng)
            parents = [
                candidate
                for scored_rows in starts
                for candidate in scored_rows.sketch.candidates(scored_rows.rows.tolist())
            ]
            scorer.score_candidates(scorer.space.mutate_all(rng, parents), BRED)

    def _sample(self, knobs: KnobOrder, scorer: Scorer, count: int, rng: np.random.Generator) -> Rows:
        rows = knobs.knobs.undecided_rows(count)
        sharpness = np.where(np.arange(count) % 2, self.sharpness, 1.0)[:, None]
        for step, knob in enumerate(knobs.order):
            legal = knobs.knobs.legal(knob, rows)
            logits = np.zeros(legal.shape)
            if self.learning and isinstance(scorer.model, ProposesDecisions):
                line, place = np.nonzero(legal)
                options = rows[line]
                knobs.knobs.set(knob, options, place)
                features = scorer.space.features(knobs.sketch.candidates(options.tolist()))
                logits[line, place] = scorer.model.rate_last_decision(
                    mask_undecided_columns(features, knobs.last_decided_step(step + 1))
                )
            knobs.knobs.set(knob, rows, draw_legal_options(rng, sharpness * logits, legal))
        return rows
