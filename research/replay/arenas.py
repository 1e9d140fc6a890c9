"""Where searchers are compared: a recorded task or a made-up space, each with a known optimum."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from costmodels.base import CostModel
from research.replay.grounding import LooseSpace, WideSpace, propose_recorded
from research.replay.recording import RecordedTask
from research.replay.space import RecordedSpace
from workers.search.base import Proposal, Searcher, Trial
from workers.search.space import Candidate, Space
from workers.search.synthetic import SyntheticSpace


class View(StrEnum):
    """What a searcher is shown of a recording."""

    RECORDED = "recorded"  # its steps and draws lead to recorded candidates, among which the model chooses
    WIDE = "wide"  # the whole space; only what it proposes in the end is moved to the ground


class Arena(ABC):
    """A space that answers at once."""

    def __init__(self, kind: str, name: str, space: Space, optimum_us: float) -> None:
        self.kind = kind
        self.name = name
        self.space = space  # as a searcher and a model see it
        self.optimum_us = optimum_us

    @abstractmethod
    def measure(self, candidate: Candidate) -> Trial:
        """What became of a candidate."""

    def propose(
        self,
        searcher: Searcher,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        """What a searcher wants to know next."""
        return searcher.propose(self.space, history, model, count, rng)


class SyntheticArena(Arena):
    """A made-up matrix product."""

    def __init__(self, m: int, n: int, k: int) -> None:
        self._synthetic = SyntheticSpace(m, n, k)
        super().__init__("synthetic", f"{m}x{n}x{k}", self._synthetic, self._synthetic.optimum_us)

    def measure(self, candidate: Candidate) -> Trial:
        return self._synthetic.measure(candidate)


class RecordedArena(Arena):
    """A recorded task. Nothing that was not recorded is ever proposed."""

    def __init__(self, task: RecordedTask, view: View) -> None:
        self._recorded = RecordedSpace(task)
        shown = LooseSpace(task) if view is View.RECORDED else WideSpace(self._recorded)
        name = f"{task.name} {task.workload[:8]}"  # another model may have another task of this name
        super().__init__(str(view), name, shown, self._recorded.optimum_us)

    def measure(self, candidate: Candidate) -> Trial:
        return self._recorded.measure(candidate)

    def propose(
        self,
        searcher: Searcher,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        return propose_recorded(searcher, self.space, self._recorded, history, model, count, rng)

    def even_trials(self, factor: float) -> float:
        """How many draws without looking find one within `factor` of the optimum, on average."""
        trials = self._recorded.task.trials
        good = sum(t.latency_us is not None and t.latency_us <= factor * self.optimum_us for t in trials)
        return (len(trials) + 1) / (good + 1)
