"""DynaTune: the round that takes most off the job's weighted latency a second of device time.

The released code rewards raw GFLOPS, which picks the fastest kernel for ever. Here an arm is worth the drop
of the weighted latency that its belief expects, with an upper confidence bound for what is uncertain. It is
divided by the seconds the round takes and by the job's total: scores are shares of the total a second.
"""

from collections.abc import Sequence
from typing import Final

from services.planner.policy import Arm, Choice, Policy, unstarved
from services.planner.reasons import in_words, weighted_us
from services.planner.values import TaskView

# How many standard deviations of the gain count as a reason to look.
OPTIMISM: Final = 0.1


class DynaTune(Policy):
    """An upper confidence bound on the gain a second."""

    # A search proposes the default schedules first: a few candidates tell the level, and the belief the rest.
    first_visit = 0.5

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> Choice:
        total = sum(sorted(weighted_us(arm.task, arm.forecast) for arm in arms))
        arm = max(unstarved(arms), key=lambda arm: (_reward(arm), -arm.task.index))
        return Choice(arm.task, _reward(arm) / total, in_words(arm))


def _reward(arm: Arm) -> float:
    gain = arm.forecast.gain_us + OPTIMISM * arm.forecast.gain_sd_us
    return arm.task.weight * gain / arm.seconds
