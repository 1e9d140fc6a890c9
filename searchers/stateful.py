"""Searchers that keep what they learned: what a round leaves is given to the task's next round."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from costmodels.base import CostModel
from searchers.base import Proposal, Searcher, Trial
from searchers.space import Space

MOST_BYTES: Final = 1 << 20

State = bytes | None


class StatefulSearcher(Searcher):
    """A Searcher whose rounds of one task, in one job, build on each other.

    Contract, beside that of Searcher
    - Proposals and the new state are a pure function of the arguments, the old state among them.
    - A state is at most MOST_BYTES, without pickle. None: nothing was learned, and the next round is given
      what this one was.
    - Bytes that are damaged, of another version or of another space are nothing: it begins anew.
    """

    @abstractmethod
    def propose_from(
        self,
        state: State,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> tuple[list[Proposal], State]:
        """The next candidates to measure, best first, and what the task's next round begins with."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        return self.propose_from(None, space, history, model, count, rng)[0]


class Continued(Searcher):
    """The rounds of one task in one process, for searches that are played: it holds the state itself."""

    def __init__(self, searcher: StatefulSearcher) -> None:
        self._searcher = searcher
        self._state: State = None

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        proposals, left = self._searcher.propose_from(self._state, space, history, model, count, rng)
        self._state = left or self._state
        return proposals


def continued(searcher: Searcher) -> Searcher:
    """A searcher for all rounds of one task; one that keeps nothing is that already."""
    return Continued(searcher) if isinstance(searcher, StatefulSearcher) else searcher
