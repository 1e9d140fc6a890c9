"""Policy gradient over decisions, as in Woodpecker, starting from the fastest candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import Column
from searchers.learning.dense_network import Lesson, fits
from searchers.learning.exploring_learner import HistorySample, Scorer
from searchers.learning.knobs import Draw, KnobDistributions, counted, knobs_of, softmax
from searchers.learning.stateful_learner import LearnedParameters, StatefulLearner
from searchers.space import Sketch
from searchers.tile_factorizations import Rows

POLICY = "policy"
SMALLEST_SPREAD = 1e-6
LEAST = 1e-12
WORST = -1.0  # lower limit of advantages, in spreads, so that failures do not dominate


class DecisionPolicy:
    """Independent distributions over the sketch and each of its decisions."""

    def __init__(
        self, sketches: Sequence[Sketch], liked: dict[str, Rows], lessons: LearnedParameters, rate: float
    ) -> None:
        """Fit the policy to preferred rows, averaged with the last round's lessons."""
        rows = [liked.get(s.key, np.empty((0, s.width), dtype=np.int32)) for s in sketches]
        self._rate = rate
        self._taste = np.log([1.0 + len(preferred) for preferred in rows])
        self._tables = [
            _tables(sketch, preferred, lessons.of(sketch.key), rate)
            for sketch, preferred in zip(sketches, rows, strict=True)
        ]

    def lesson(self, index: int) -> Lesson:
        """Return the probability of each option of a sketch's knobs."""
        tables = self._tables[index]
        return {"chances": softmax(tables.logits, tables.knobs.exists)}

    def draw(self, rng: np.random.Generator, count: int) -> list[Draw]:
        """Return `count` random candidates, as one draw per sketch."""
        chances = softmax(self._taste, np.ones(len(self._taste), dtype=np.bool_))
        shares = rng.multinomial(count, chances)
        return [table.draw(rng, share) for table, share in zip(self._tables, shares, strict=True)]

    def learn(self, draws: Sequence[Draw], promises: Sequence[Column], entropy: float) -> None:
        """Make one policy-gradient step; all sketches have the same baseline."""
        promise = np.concatenate(promises)
        normalised = (promise - promise.mean()) / max(SMALLEST_SPREAD, float(promise.std()))
        advantage = np.maximum(WORST, normalised)
        parts = np.split(advantage, np.cumsum([len(promise) for promise in promises])[:-1])
        self._taste += self._rate * np.array([part.sum() for part in parts]) / len(advantage)
        for table, draw, part in zip(self._tables, draws, parts, strict=True):
            if len(part):
                table.learn(draw, part, entropy)


@dataclass(eq=False, kw_only=True)
class Reinforce(StatefulLearner):
    """Trains a few policies, each started from its own draw of the best candidates.

    A step weights each drawn candidate by its score minus the mean of its policy's draw (the
    baseline); an entropy bonus preserves exploration. The mean of the final policies is
    stored; the task's next round starts from its average with the best candidates.
    """

    policies: int = 4
    updates: int = 10
    elite: int = 32
    greed: float = 2.0
    rate: float = 0.3
    entropy: float = 0.02

    def study(
        self, lessons: LearnedParameters, scorer: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> None:
        policies = []
        for _ in range(self.policies):
            liked = {
                scored_rows.sketch.key: scored_rows.rows
                for scored_rows in scorer.starts(self.elite, self.greed, rng)
            }
            policies.append(DecisionPolicy(scorer.space.sketches, liked, lessons, self.rate))
        count = max(1, (self.considered - len(scorer)) // (self.updates * self.policies))
        for _ in range(self.updates):
            draws = [policy.draw(rng, count) for policy in policies]
            priced = zip(policies, draws, _scores_of(scorer, draws), strict=True)
            for policy, policy_draws, promises in priced if self.learning else ():
                policy.learn(policy_draws, promises, self.entropy)
        for index, sketch in enumerate(scorer.space.sketches):
            chances = [policy.lesson(index)["chances"] for policy in policies]
            lessons.keep(sketch.key, {"chances": np.mean(chances, axis=0)})


def _tables(sketch: Sketch, liked: Rows, parameters: Lesson | None, rate: float) -> KnobDistributions:
    knobs = knobs_of(sketch)
    logits = counted(knobs, liked, np.ones(len(liked)))
    if parameters is not None and fits(parameters, {"chances": logits.shape}):
        total = softmax(logits, knobs.exists) + np.maximum(0.0, parameters["chances"])
        logits = np.log(np.maximum(total / 2, LEAST))
    return KnobDistributions(knobs, logits, rate)


def _scores_of(scorer: Scorer, draws: Sequence[Sequence[Draw]]) -> list[list[Column]]:
    """Return the scores of every policy's draw, from one call of the model."""
    sketches = scorer.space.sketches
    views = [(s, draw.rows) for policy_draws in draws for s, draw in zip(sketches, policy_draws, strict=True)]
    promises = [scored_rows.promise for scored_rows in scorer.score_rows(views, POLICY)]
    return [promises[start : start + len(sketches)] for start in range(0, len(promises), len(sketches))]
