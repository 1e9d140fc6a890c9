"""Policy gradient over decisions, as in Woodpecker, starting from the fastest."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, Scorer
from mallorn.searchers.learning.knobs import Draw, KnobDistributions, frequency_logits, knobs_of, softmax
from mallorn.searchers.space import Sketch
from mallorn.searchers.tile_factorizations import Rows

POLICY = "policy"
SMALLEST_SPREAD = 1e-6
WORST = -1.0  # lower limit of advantages, in spreads, so that failures do not dominate


class DecisionPolicy:
    """A policy: independent distributions over sketches and over each decision's options."""

    def __init__(self, sketches: Sequence[Sketch], good_rows: dict[str, Rows], rate: float) -> None:
        """Fit to good rows of each sketch."""
        rows = [good_rows.get(s.key, np.empty((0, s.decision_count), dtype=np.int32)) for s in sketches]
        self._rate = rate
        self._taste = np.log([1.0 + len(preferred) for preferred in rows])
        self._tables = []
        for sketch, preferred in zip(sketches, rows, strict=True):
            knobs = knobs_of(sketch)
            logits = frequency_logits(knobs, preferred, np.ones(len(preferred)))
            self._tables.append(KnobDistributions(knobs, logits, rate))

    def draw(self, rng: np.random.Generator, count: int) -> list[Draw]:
        """Return `count` random candidates, as one draw per sketch."""
        chances = softmax(self._taste, np.ones(len(self._taste), dtype=np.bool_))
        shares = rng.multinomial(count, chances)
        return [table.draw(rng, share) for table, share in zip(self._tables, shares, strict=True)]

    def learn(self, draws: Sequence[Draw], scores: Sequence[Column], entropy: float) -> None:
        """Make a policy-gradient step from draws and their scores, with one baseline."""
        promise = np.concatenate(scores)
        normalised = (promise - promise.mean()) / max(SMALLEST_SPREAD, float(promise.std()))
        advantage = np.maximum(WORST, normalised)
        parts = np.split(advantage, np.cumsum([len(promise) for promise in scores])[:-1])
        self._taste += self._rate * np.array([part.sum() for part in parts]) / len(advantage)
        for table, draw, part in zip(self._tables, draws, parts, strict=True):
            if len(part):
                table.learn(draw, part, entropy)


@dataclass(eq=False, kw_only=True)
class Reinforce(Learner):
    """Trains a few policies, each started from its own draw of the best candidates.

    A step weights each drawn candidate by its score minus the mean score of that policy's
    draws (the baseline); an entropy bonus preserves exploration. With `learning` off, the
    policies stay as they started.
    """

    policies: int = 4
    updates: int = 10
    elite: int = 32
    greed: float = 2.0
    rate: float = 0.3
    entropy: float = 0.02

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        sketches = scorer.space.sketches
        policies = []
        for _ in range(self.policies):
            liked = {
                scored_rows.sketch.key: scored_rows.rows
                for scored_rows in scorer.draw_start_rows(self.elite, self.greed, rng)
            }
            policies.append(DecisionPolicy(sketches, liked, self.rate))
        count = max(1, (self.considered - len(scorer)) // (self.updates * self.policies))
        for _ in range(self.updates):
            # One call of the model scores the draws of all policies.
            draws = [policy.draw(rng, count) for policy in policies]
            views = [
                (sketch, draw.rows)
                for policy_draws in draws
                for sketch, draw in zip(sketches, policy_draws, strict=True)
            ]
            promises = [scored_rows.promise for scored_rows in scorer.score_rows(views, POLICY)]
            for index, policy in enumerate(policies if self.learning else ()):
                start = index * len(sketches)
                policy.learn(draws[index], promises[start : start + len(sketches)], self.entropy)
