"""Searchers with a state, which is passed from each round to the task's next round."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import Proposal, Searcher, Trial
from mallorn.searchers.space import Space

MOST_BYTES: Final = 1 << 20

State = bytes | None


class StatefulSearcher(Searcher):
    """A Searcher that passes a state between the rounds of one task in one job.

    Contract, in addition to that of Searcher
    - Proposals and the new state are a pure function of the arguments, including the old state.
    - A state has at most MOST_BYTES and contains no pickle. None means no new state: the next round
      gets the same state as this one.
    - A state that is damaged, of another version or of another space is treated as None.
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
        """Return the next candidates to measure, best first, and the next round's state."""

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
    """Holds the state of a StatefulSearcher itself, for simulated searches in one process."""

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
        proposals, new_state = self._searcher.propose_from(self._state, space, history, model, count, rng)
        self._state = new_state or self._state
        return proposals


def keep_state_between_calls(searcher: Searcher) -> Searcher:
    """Return a searcher that keeps its state between calls, for all rounds of one task."""
    return Continued(searcher) if isinstance(searcher, StatefulSearcher) else searcher
