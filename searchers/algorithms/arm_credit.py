"""Credit of each arm of a bandit for its trials, computed from the history."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.searchers.base import DEFAULT, Trial, proposal_method_of

# Only this many trials are used, to bound the time; the discount makes older ones irrelevant.
RECENT: Final = 512
WINDOW: Final = 32  # trials ranked against each other: about two rounds, whose searchers differ
DISCOUNT: Final = 0.985
# A new best by FULL_GAIN (log scale) earns as much as GAIN_WORTH fastest trials of a window.
GAIN_WORTH: Final = 4.0
FULL_GAIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class ArmCredit:
    """Mean credit and number of trials of each arm (bandit's option), discounted by age."""

    mean: Column
    trials: Column

    def upper_confidence_bounds(self, exploration: float) -> Column:
        doubt = np.sqrt(np.log1p(self.trials.sum()) / (1.0 + self.trials))
        return np.asarray(self.mean + exploration * doubt)

    def shares(self, exploration: float, temperature: float, floor: float) -> Column:
        """Return each arm's share of a round, at least `floor`; the shares sum to 1."""
        hope = self.upper_confidence_bounds(exploration)
        weight = np.exp((hope - hope.max()) / temperature)
        return np.asarray(floor + (1.0 - floor * len(hope)) * weight / weight.sum())


def compute_arm_credit(
    history: Sequence[Trial], arms: Sequence[str], arm_of: Callable[[str], str]
) -> ArmCredit:
    """Return the mean credit of recent trials of each arm; `arm_of` maps origins to arms.
    A trial's credit is its rank among neighbouring trials, plus a bonus for a new best.
    An arm without trials has the mean credit of all arms."""
    older, recent = history[:-RECENT], history[-RECENT:]
    best_us = min((trial.time_us or np.inf for trial in older), default=np.inf)
    times_us = np.array([trial.time_us or np.inf for trial in recent], dtype=np.float64)
    before_us = np.minimum.accumulate(np.concatenate([[best_us], times_us]))[:-1]
    better = np.isfinite(before_us) & (times_us < before_us)
    gain = np.zeros(len(times_us))
    gain[better] = np.minimum(1.0, np.log(before_us[better] / times_us[better]) / FULL_GAIN)
    rank = np.zeros(len(times_us))
    for end in range(len(times_us), 0, -WINDOW):
        lines = slice(max(0, end - WINDOW), end)
        window_us = times_us[lines]
        # Share of the other trials of the window that are slower; 0 for failures.
        slower = (window_us[None, :] > window_us[:, None]).sum(axis=1) / max(1, len(window_us) - 1)
        rank[lines] = np.where(np.isfinite(window_us), slower, 0.0)
    weight = np.power(DISCOUNT, np.arange(len(times_us))[::-1].astype(np.float64))
    earned = rank + GAIN_WORTH * gain
    place = {arm: number for number, arm in enumerate(arms)}
    # Defaults and trials that never ran belong to no arm.
    owner = np.array(
        [
            -1
            if trial.outcome in UNINFORMATIVE or proposal_method_of(trial.origin) == DEFAULT
            else place.get(arm_of(trial.origin), -1)
            for trial in recent
        ],
        dtype=np.int64,
    )
    has_arm = owner >= 0
    trials = np.bincount(owner[has_arm], weights=weight[has_arm], minlength=len(arms))
    total = np.bincount(owner[has_arm], weights=(weight * earned)[has_arm], minlength=len(arms))
    common = total.sum() / trials.sum() if trials.sum() else 0.0
    return ArmCredit((total + common) / (trials + 1.0), trials.astype(np.float64))
