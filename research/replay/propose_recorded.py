"""Replaces proposals by recorded candidates, so that each can be measured."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from research.replay.recorded_space import RecordedSpace
from searchers.base import RANDOM, Proposal, Searcher, Trial
from searchers.batch_searcher import Request
from searchers.decision_space import DecisionSpace
from searchers.space import Candidate


class LooseSpace(RecordedSpace):
    """Draws and steps lead to recorded candidates; any well-formed candidate is valid."""

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


class WideSpace(DecisionSpace):
    """The space of the recorded task, with all its candidates."""

    def __init__(self, recorded: RecordedSpace) -> None:
        task = recorded.task
        super().__init__(task.sketches, task.descriptors, task.machine)
        self._defaults = recorded.defaults()

    def defaults(self) -> list[Candidate]:
        return list(self._defaults)

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


def propose_recorded(searcher: Searcher, asked: Request, space: RecordedSpace) -> list[Proposal]:
    """Proposals for a loose or a wide space, each replaced by its nearest recorded neighbour.

    Returns distinct recorded candidates that the history lacks; fewer only when no more are left.
    """
    ground = RecordedProposals(space, asked.history)
    wanted = min(asked.count, ground.left)
    landed = ground.land(searcher.propose(asked.space, asked.history, asked.model, wanted, asked.rng))
    return landed + ground.fill(wanted - len(landed), asked.rng)


class RecordedProposals:
    """The recorded candidates that are not measured yet."""

    def __init__(self, space: RecordedSpace, history: Sequence[Trial]) -> None:
        self._space = space
        measured = {trial.candidate for trial in history}
        self._free = dict.fromkeys(each for each in space.candidates if each not in measured)

    @property
    def left(self) -> int:
        return len(self._free)

    def land(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Recorded proposals unchanged; each other one moved to the nearest free candidate.

        A moved proposal loses its prediction. It is left out if its sketch has no free candidate.
        """
        exact = {each.candidate for each in proposals if each.candidate in self._free}
        for candidate in exact:
            del self._free[candidate]
        landed = [each if each.candidate in exact else self._moved(each) for each in proposals]
        return [each for each in landed if each is not None]

    def fill(self, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Random free candidates."""
        free = list(self._free)
        return [Proposal(free[line], None, RANDOM) for line in rng.permutation(len(free))[:count]]

    def _moved(self, proposal: Proposal) -> Proposal | None:
        nearest = self._space.nearest_of(self._free, proposal.candidate)
        if nearest is None:
            return None
        del self._free[nearest]
        return replace(proposal, candidate=nearest, predicted=None)
