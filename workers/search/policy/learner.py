"""The base of the learning searchers: they explore through a scout, always with some model."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import CostModel
from workers.search.base import Proposal, Trial
from workers.search.origins import DEFAULT, MEASURED, RANDOM
from workers.search.policy.lessons import Lessons, lessons_of
from workers.search.policy.scout import Scout
from workers.search.policy.stand_in import StandIn
from workers.search.pooled import PooledSearcher
from workers.search.space import Candidate, Space


@dataclass(eq=False, kw_only=True)
class Learner(PooledSearcher):
    """A PooledSearcher that learns anew in each round; its pool is all that it saw meanwhile.

    Without a model, kernel regression over the task's measurements prices candidates; without measurements
    the pool is random.
    """

    considered: int = 4096
    optimism: float = 0.5

    @abstractmethod
    def explore(self, scout: Scout, lessons: Lessons, rng: np.random.Generator) -> None:
        """Look at about `considered` candidates, increasingly good ones."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        if model is None and count:
            model = stand_in(space, lessons_of(history))
        return super().propose(space, history, model, count, rng)

    def pool(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> dict[Candidate, str]:
        if model is None:
            return dict.fromkeys(space.sample(rng, count), RANDOM)
        lessons = lessons_of(history)
        scout = Scout(space, model, optimism=self.optimism)
        scout.look_at(lessons.candidates, MEASURED)
        scout.look_at(space.defaults(), DEFAULT)
        scout.look_at(space.sample(rng, self.considered // 8), RANDOM)
        self.explore(scout, lessons, rng)
        return scout.pool()


def stand_in(space: Space, lessons: Lessons) -> CostModel | None:
    """A model of the lessons alone; None without lessons."""
    if not lessons.candidates:
        return None
    model = StandIn()
    groups = np.zeros(len(lessons.candidates), dtype=np.int64)
    model.fit(space.features(lessons.candidates), lessons.label, groups, seed=0)
    return model
