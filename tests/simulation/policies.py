"""Policies of strangers: each ends its job's planning in another way."""

import sys
from collections.abc import Sequence
from typing import Any, Final

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


NAMES: Final = tuple(f"{__name__}:{policy.__name__}" for policy in (Raises, Exits, Mumbles))
