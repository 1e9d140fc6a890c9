"""Policy gradient over choices, as in Woodpecker, started from the fast candidates."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import Column
from searchers.learning.exploring_learner import HistorySample
from searchers.learning.knob_distributions import Draw, KnobDistributions, counted, softmax
from searchers.learning.knobs import knobs_of
from searchers.learning.learned_parameters import LearnedParameters, Lesson, fits
from searchers.learning.scorer import Scorer
from searchers.learning.stateful_learner import StatefulLearner
from searchers.space import Sketch
from searchers.tile_factorizations import Rows

POLICY = "policy"
SMALLEST_SPREAD = 1e-6
LEAST = 1e-12
WORST = -1.0  # lower limit of an advantage, in spreads: failures lie so low that they would drown the rest


class DecisionPolicy:
    """Independent distributions over the sketch and each of its decisions."""

    def __init__(
        self, sketches: Sequence[Sketch], liked: dict[str, Rows], lessons: LearnedParameters, rate: float
    ) -> None:
        """Fitted by cross-entropy to the preferred rows of each sketch, and half to what was learned."""
        rows = [liked.get(s.key, np.empty((0, s.width), dtype=np.int32)) for s in sketches]
        self._rate = rate
        self._taste = np.log([1.0 + len(mine) for mine in rows])
        self._tables = [
            _tables(sketch, mine, lessons.of(sketch.key), rate)
            for sketch, mine in zip(sketches, rows, strict=True)
        ]

    def lesson(self, at: int) -> Lesson:
        """The chances of each option of a sketch's knobs."""
        tables = self._tables[at]
        return {"chances": softmax(tables.logits, tables.knobs.exists)}

    def draw(self, rng: np.random.Generator, count: int) -> list[Draw]:
        """`count` candidates, one draw per sketch."""
        chances = softmax(self._taste, np.ones(len(self._taste), dtype=np.bool_))
        shares = rng.multinomial(count, chances)
        return [table.draw(rng, share) for table, share in zip(self._tables, shares, strict=True)]

    def learn(self, draws: Sequence[Draw], promises: Sequence[Column], entropy: float) -> None:
        """One policy-gradient step; the sketches share one baseline."""
        promise = np.concatenate(promises)
        lead = (promise - promise.mean()) / max(SMALLEST_SPREAD, float(promise.std()))
        advantage = np.maximum(WORST, lead)
        parts = np.split(advantage, np.cumsum([len(promise) for promise in promises])[:-1])
        self._taste += self._rate * np.array([part.sum() for part in parts]) / len(advantage)
        for table, draw, part in zip(self._tables, draws, parts, strict=True):
            if len(part):
                table.learn(draw, part, entropy)


@dataclass(eq=False, kw_only=True)
class Reinforce(StatefulLearner):
    """A few policies, each started from its own draw of the best known, climb the expected score.

    A step weighs each drawn candidate by its score above the mean of its policy's draw (the baseline); an
    entropy bonus keeps options open. The mean of where they end is what the task's next round begins with, in
    equal parts with the best known.
    """

    policies: int = 4
    updates: int = 10
    elite: int = 32
    greed: float = 2.0
    rate: float = 0.3
    entropy: float = 0.02

    def study(
        self, lessons: LearnedParameters, scout: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> None:
        policies = []
        for _ in range(self.policies):
            liked = {sight.sketch.key: sight.rows for sight in scout.starts(self.elite, self.greed, rng)}
            policies.append(DecisionPolicy(scout.space.sketches, liked, lessons, self.rate))
        count = max(1, (self.considered - len(scout)) // (self.updates * self.policies))
        for _ in range(self.updates):
            draws = [policy.draw(rng, count) for policy in policies]
            priced = zip(policies, draws, _priced(scout, draws), strict=True)
            for policy, drawn, promises in priced if self.learning else ():
                policy.learn(drawn, promises, self.entropy)
        for at, sketch in enumerate(scout.space.sketches):
            chances = [policy.lesson(at)["chances"] for policy in policies]
            lessons.keep(sketch.key, {"chances": np.mean(chances, axis=0)})


def _tables(sketch: Sketch, liked: Rows, learned: Lesson | None, rate: float) -> KnobDistributions:
    knobs = knobs_of(sketch)
    logits = counted(knobs, liked, np.ones(len(liked)))
    if learned is not None and fits(learned, {"chances": logits.shape}):
        both = softmax(logits, knobs.exists) + np.maximum(0.0, learned["chances"])
        logits = np.log(np.maximum(both / 2, LEAST))
    return KnobDistributions(knobs, logits, rate)


def _priced(scout: Scorer, draws: Sequence[Sequence[Draw]]) -> list[list[Column]]:
    """The scores of every policy's draw, by one call of the model."""
    sketches = scout.space.sketches
    views = [(s, draw.rows) for drawn in draws for s, draw in zip(sketches, drawn, strict=True)]
    promises = [sight.promise for sight in scout.look(views, POLICY)]
    return [promises[at : at + len(sketches)] for at in range(0, len(promises), len(sketches))]
