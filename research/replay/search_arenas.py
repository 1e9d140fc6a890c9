"""Arenas to compare searchers in, as recorded tasks, with known optima."""

from abc import ABC, abstractmethod
from enum import StrEnum

from research.replay.propose_recorded import LooseSpace, WideSpace, propose_recorded
from research.replay.recorded_space import RecordedSpace
from research.replay.recorded_task import RecordedTask
from searchers.base import Proposal, Searcher, Trial
from searchers.batch_searcher import Request
from searchers.space import Candidate, Space


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
