"""The Searcher seam: propose the next candidates of one task."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import CostModel
from mallorn.core.outcomes import Outcome
from workers.search.space import Candidate, Space


@dataclass(frozen=True, slots=True)
class Trial:
    """A measured candidate, as searchers see it."""

    candidate: Candidate
    outcome: Outcome
    latency_us: float | None
    origin: str = ""  # whose idea it was: searcher, or searcher:means
    build_ms: float | None = None

    @property
    def time_us(self) -> float | None:
        """The latency of a candidate that works; what is fast and wrong has none."""
        return self.latency_us if self.outcome is Outcome.OK else None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate worth measuring, what the model expected of it, and whose idea it was."""

    candidate: Candidate
    predicted: float | None
    origin: str


class Searcher(ABC):
    """Proposes candidates of one task.

    Contract
    - A proposal is a pure function of the arguments: a searcher keeps nothing between calls. What it wants to
      learn it learns from `history`, so a round can be recomputed anywhere.
    - It returns at most `count` distinct, valid candidates and none that `history` holds already; fewer only
      when the space has no more.
    - It is made with the BatchSampler that chooses from its pool, if it gathers one, as the one argument.
    - Without a model (the first round of a family) it still proposes, the space's defaults first.
    """

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
