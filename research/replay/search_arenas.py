"""Arenas to compare searchers in, as recorded tasks, with known optima."""

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


class ShownSpace(StrEnum):
    """The space that a searcher sees of a recording."""

    RECORDED = "recorded"  # its steps and draws lead to recorded candidates
    WIDE = "wide"  # the whole space; proposals are moved to recorded candidates


class Arena(ABC):
    """A space that answers at once."""

    def __init__(self, kind: str, name: str, space: Space, optimum_us: float) -> None:
        self.kind = kind
        self.name = name
        self.space = space  # as a searcher and a model see it
        self.optimum_us = optimum_us

    @abstractmethod
    def measure(self, candidate: Candidate) -> Trial:
        """The result of a candidate."""

    def propose(self, searcher: Searcher, asked: Request) -> list[Proposal]:
        """The next candidates of a searcher."""
        return searcher.propose(asked.space, asked.history, asked.model, asked.count, asked.rng)


class RecordedArena(Arena):
    """A recorded task; only recorded candidates are proposed."""

    def __init__(self, task: RecordedTask, view: ShownSpace) -> None:
        self.recorded = RecordedSpace(task)
        shown = LooseSpace(task) if view is ShownSpace.RECORDED else WideSpace(self.recorded)
        name = f"{task.name} {task.workload[:8]}"  # another model may have another task of this name
        super().__init__(str(view), name, shown, self.recorded.optimum_us)

    def measure(self, candidate: Candidate) -> Trial:
        return self.recorded.measure(candidate)

    def propose(self, searcher: Searcher, asked: Request) -> list[Proposal]:
        return propose_recorded(searcher, asked, self.recorded)
