"""Base class of learners that pass their parameters on to the task's next round."""

from abc import abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from costmodels.base import CostModel
from searchers.base import Proposal, Trial
from searchers.batch_searcher import BatchSearcher
from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.learned_parameters import LearnedParameters
from searchers.learning.scorer import Scorer
from searchers.space import Space
from searchers.stateful import State, StatefulSearcher


@dataclass(eq=False, kw_only=True)
class StatefulLearner(StatefulSearcher, Learner):
    """A Learner whose policy continues from the task's last round.

    With `keeping` off, it trains anew in each round; with `learning` off, it does not train.
    These variants show the benefit of each.
    """

    learning: bool = True
    keeping: bool = True

    def __post_init__(self) -> None:
        self._lessons = LearnedParameters(self._kind)

    @abstractmethod
    def study(
        self, lessons: LearnedParameters, scorer: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> None:
        """Explore like `explore`, starting from these lessons, and update them."""

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        self.study(self._lessons, scorer, sample, rng)

    def propose_from(
        self,
        state: State,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[list[Proposal], State]:
        pupil = copy(self)  # keep this object unchanged
        pupil._lessons = LearnedParameters.read(self._kind, state if self.keeping and self.learning else None)
        proposals = BatchSearcher.propose(pupil, space, history, model, count, rng)
        return proposals, pupil._lessons.packed() if self.keeping and self.learning else None

    @property
    def _kind(self) -> str:
        return type(self).__name__
