"""The Searcher seam: propose the next candidates of one task."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from costmodels.base import CostModel
from mallorn.core.values.trial import Trial
from workers.search.space import Candidate, Space

__all__ = ["Proposal", "Searcher", "Trial"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to measure, the model's prediction, and its origin."""

    candidate: Candidate
    predicted: float | None
    origin: str


class Searcher(ABC):
    """Proposes candidates of one task.

    Contract
    - A proposal is a pure function of the arguments: a searcher keeps nothing between calls. What it wants to
      learn it learns from `history`, so a round can be recomputed anywhere; one that would rather go on from
      what its last round learned is a `workers.search.remembering.Remembering`.
    - It returns at most `count` distinct, valid candidates and none that `history` holds already; fewer only
      when the space has no more.
    - Its one argument is the BatchSampler, for searchers that choose from a pool.
    - Without a model (the first round of a family) it still proposes, the space's defaults first.
    - Where `compiles`, it asks models of lowered views itself, about no more than a few hundred candidates;
      others are given the draft model in their place, and the model chooses among what they propose.
    """

    compiles: ClassVar[bool] = False

    @abstractmethod
    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        """The next candidates to measure, best first."""
