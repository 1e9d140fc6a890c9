"""DynaTune: choose the round that lowers weighted latency most per second of device time.

The released code rewards raw GFLOPS, which picks the fastest kernel for ever. Here a task's
score is the drop of the weighted latency that the round is expected to bring, plus a bonus
for uncertainty, per second of the round, as a share of the job's total weighted latency.
"""

from collections.abc import Sequence
from typing import Final

from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.policy import (
    Arm,
    Policy,
    TaskChoice,
    describe_expected_gain,
    select_lagging_arms,
    weighted_us,
)

# Weight of the gain's standard deviation in the bound.
OPTIMISM: Final = 0.1


class DynaTune(Policy):
    """Policy that maximises an upper confidence bound on the gain per second."""

    # A first round begins with default schedules: a few show how fast the task is.
    first_visit = 0.5

    def choose(self, arms: Sequence[Arm], tasks: Sequence[TaskView], seed: int) -> TaskChoice:
        total = sum(sorted(weighted_us(arm.task, arm.forecast) for arm in arms))
        arm = max(select_lagging_arms(arms), key=lambda arm: (_reward(arm), -arm.task.index))
        return TaskChoice(arm.task, _reward(arm) / total, describe_expected_gain(arm))


def _reward(arm: Arm) -> float:
    gain = arm.forecast.gain_us + OPTIMISM * arm.forecast.gain_sd_us
    return arm.task.weight * gain / arm.seconds
