"""Beam search over decisions by the predicted value of partial schedules."""

from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, Scorer
from mallorn.searchers.tile_factorizations import Rows
from mallorn_research.costmodels.decision_prefixes import ValuesPrefixes, mask_undecided_columns
from mallorn_research.searchers.knob_order import KnobOrder, knob_order_of

BEAM = "beam"


@dataclass(eq=False, kw_only=True)
class Beam(Learner):
    """Beam search per sketch, knob by knob from the innermost tiles, by values of prefixes.

    After "Value Learning for Throughput Optimization of Deep Neural Networks" (MLSys'21). A
    prefix is a partly decided schedule. Half of a beam are the best prefixes, the other
    half are sampled by value for diversity. All complete schedules at the end of the beam
    are scored and join the pool. For a model that cannot value prefixes, a few random
    completions of each prefix are scored (and join the pool), and the mean of the best two
    is the prefix's value; this is the paper's baseline.

    The paper takes one schedule at the end. Here the cost model and the sampler choose a
    batch for measuring. With `learning` off, prefixes get random values.
    """

    width: int = 64
    options: int = 8  # options of a knob that each prefix of a full beam tries
    completions: int = 4
    temperature: float = 0.3

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        sketches = scorer.space.sketches
        budget = max(1, (self.considered - len(scorer)) // len(sketches))
        ends = []
        for sketch in sketches:
            knobs = knob_order_of(sketch)
            scores_completions = self.learning and not isinstance(scorer.model, ValuesPrefixes)
            scored_rows_per_prefix = self.completions * (len(knobs) + 1) if scores_completions else 1
            width = max(2, min(self.width, budget // (scored_rows_per_prefix * self.options)))
            rows = knobs.knobs.undecided_rows(1)
            for step, knob in enumerate(knobs.order):
                if len(rows) > width:
                    values = self._prefix_values(knobs, step, rows, scorer, rng)
                    best_first = np.argsort(-values, kind="stable")
                    first, remaining = best_first[: width // 2], best_first[width // 2 :]
                    noisy_values = values[remaining] + self.temperature * rng.gumbel(size=len(remaining))
                    sampled = remaining[np.argsort(-noisy_values, kind="stable")[: width - len(first)]]
                    rows = rows[np.concatenate([first, sampled])]

                # Expand every row by each legal option of the knob, or by a random part of too many.
                legal = knobs.knobs.legal(knob, rows)
                chance = np.where(legal, rng.random(legal.shape), 2.0)
                options_per_row = max(1, width * self.options // len(rows))
                is_tried = legal & (chance.argsort(axis=1).argsort(axis=1) < options_per_row)
                line, place = np.nonzero(is_tried)
                rows = rows[line]
                knobs.knobs.set(knob, rows, place)
            ends.append((sketch, rows))
        scorer.score_rows(ends, BEAM)

    def _prefix_values(
        self, knobs: KnobOrder, step: int, rows: Rows, scorer: Scorer, rng: np.random.Generator
    ) -> Column:
        if not self.learning:
            return rng.random(len(rows))
        if isinstance(scorer.model, ValuesPrefixes):
            features = scorer.space.features(knobs.sketch.candidates(rows.tolist()))
            return scorer.model.score_prefixes(
                mask_undecided_columns(features, knobs.last_decided_step(step))
            ).astype(np.float64)
        # Score each prefix by the mean of the best two of a few random completions.
        completions = np.repeat(rows, self.completions, axis=0)
        for knob in knobs.order[step:]:
            legal = knobs.knobs.legal(knob, completions)
            priorities = np.where(legal, rng.random(legal.shape), -1.0)
            knobs.knobs.set(knob, completions, priorities.argmax(axis=1))
        (scored_rows,) = scorer.score_rows([(knobs.sketch, completions)], BEAM)
        sorted_scores = np.sort(scored_rows.promise.reshape(len(rows), self.completions), axis=1)
        return np.asarray(sorted_scores[:, -2:].mean(axis=1))
