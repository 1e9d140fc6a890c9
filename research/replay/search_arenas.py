"""Arenas: spaces with known optima and immediate results, in which to compare searchers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from research.replay.recorded_space import RecordedSpace
from research.replay.recorded_task import RecordedTask
from searchers.base import RANDOM, Proposal, Searcher, Trial
from searchers.batch_searcher import Request
from searchers.decision_space import DecisionSpace
from searchers.space import Candidate, Space


class LooseSpace(RecordedSpace):
    """Samples and mutations give recorded candidates; any well-formed candidate is valid."""

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


class WideSpace(DecisionSpace):
    """The full space of a recorded task, with candidates that were not recorded."""

    def __init__(self, recorded: RecordedSpace) -> None:
        task = recorded.task
        super().__init__(task.sketches, task.descriptors, task.machine)
        self._defaults = recorded.defaults()

    def defaults(self) -> list[Candidate]:
        return list(self._defaults)

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)


def propose_recorded(searcher: Searcher, asked: Request, space: RecordedSpace) -> list[Proposal]:
    """Let a searcher propose in its space; replace proposals by recorded candidates.

    Returns distinct, unmeasured recorded candidates: the requested number, or all that remain.
    """
    recorded = RecordedProposals(space, asked.history)
    count = min(asked.count, recorded.left)
    proposals = recorded.land(searcher.propose(asked.space, asked.history, asked.model, count, asked.rng))
    return proposals + recorded.fill(count - len(proposals), asked.rng)


class RecordedProposals:
    """The recorded candidates that the history does not contain."""

    def __init__(self, space: RecordedSpace, history: Sequence[Trial]) -> None:
        self._space = space
        measured = {trial.candidate for trial in history}
        self._free = dict.fromkeys(each for each in space.candidates if each not in measured)

    @property
    def left(self) -> int:
        return len(self._free)

    def land(self, proposals: Sequence[Proposal]) -> list[Proposal]:
        """Keep proposals of free recorded candidates; move others to the nearest free one.

        A moved proposal loses its prediction. It is dropped if its sketch has no free candidate.
        """
        exact = {each.candidate for each in proposals if each.candidate in self._free}
        for candidate in exact:
            del self._free[candidate]
        moved = [each if each.candidate in exact else self._moved(each) for each in proposals]
        return [each for each in moved if each is not None]

    def fill(self, count: int, rng: np.random.Generator) -> list[Proposal]:
        """Return up to `count` proposals of random free candidates."""
        free = list(self._free)
        return [Proposal(free[line], None, RANDOM) for line in rng.permutation(len(free))[:count]]

    def _moved(self, proposal: Proposal) -> Proposal | None:
        nearest = self._space.nearest_of(self._free, proposal.candidate)
        if nearest is None:
            return None
        del self._free[nearest]
        return replace(proposal, candidate=nearest, predicted=None)


class ShownSpace(StrEnum):
    """Which space of a recorded task the searcher is given."""

    RECORDED = "recorded"  # mutations and samples give recorded candidates
    WIDE = "wide"  # the full space; proposals are moved to recorded candidates


class Arena(ABC):
    """A space with a known optimum whose candidates are measured by lookup or formula."""

    def __init__(self, kind: str, name: str, space: Space, optimum_us: float) -> None:
        self.kind = kind
        self.name = name
        self.space = space  # the space that searcher and model are given
        self.optimum_us = optimum_us

    @abstractmethod
    def measure(self, candidate: Candidate) -> Trial:
        """Return the result of a candidate."""

    def propose(self, searcher: Searcher, asked: Request) -> list[Proposal]:
        """Return the searcher's proposals for a request."""
        return searcher.propose(asked.space, asked.history, asked.model, asked.count, asked.rng)


class RecordedArena(Arena):
    """A recorded task as an arena; proposals are moved to recorded candidates."""

    def __init__(self, task: RecordedTask, view: ShownSpace) -> None:
        self.recorded = RecordedSpace(task)
        space = LooseSpace(task) if view is ShownSpace.RECORDED else WideSpace(self.recorded)
        name = f"{task.name} {task.workload[:8]}"  # task names may repeat between models
        super().__init__(str(view), name, space, self.recorded.optimum_us)

    def measure(self, candidate: Candidate) -> Trial:
        return self.recorded.measure(candidate)

    def propose(self, searcher: Searcher, asked: Request) -> list[Proposal]:
        return propose_recorded(searcher, asked, self.recorded)
