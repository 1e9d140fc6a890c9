"""What strangers bring: policies, each of which ends its job's planning in another way, and a searcher."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from mallorn.costmodels.base import CostModel
from mallorn.searchers.base import RANDOM, Proposal, Searcher, Trial
from mallorn.searchers.fill_round import Filter, propose_first_valid
from mallorn.searchers.space import Space
from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.policy import Arm, Policy, TaskChoice


class Raises(Policy):
    """Divides by nothing."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        raise ZeroDivisionError("nothing is left to divide by")


class Exits(Policy):
    """Ends the process that asks it."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        sys.exit(3)


class Mumbles(Policy):
    """Answers what is no answer; whoever reads it raises."""

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> Any:
        return "the first, I think"


class InOrder(Searcher):
    """Proposes the first candidates that are not in the history, so that all rounds want the same."""

    def __init__(self, sampler: object) -> None:
        """It needs none."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        found = sorted(set(space.sample(np.random.default_rng(0), DRAWN)), key=lambda each: each.key)
        return propose_first_valid(Filter(space, history), found, count, RANDOM)


DRAWN: Final = 256
IN_ORDER: Final = f"{__name__}:{InOrder.__name__}"
NAMES: Final = tuple(f"{__name__}:{policy.__name__}" for policy in (Raises, Exits, Mumbles))
