"""What many runs come to."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.lab.cells import Finished
from benchmarks.lab.grid import Combination

FACTOR: Final = 1.05
WORST: Final = 10.0  # what is slower, or failed, counts as so much slower than the optimum
RESAMPLES: Final = 1000


@dataclass(frozen=True)
class Figures:
    """All runs of one combination on the arenas of one kind."""

    kind: str
    combination: Combination
    runs: tuple[Finished, ...]

    @property
    def trials(self) -> float:
        """Geometric mean of the trials to within FACTOR; who never got there counts with the budget."""
        return _geometric(np.concatenate(self._logs_by_arena()))

    @property
    def trials_interval(self) -> tuple[float, float]:
        """Where 95 % of the figures lie that other draws of as many arenas would have brought."""
        means = np.array([logs.mean() for logs in self._logs_by_arena()])
        draws = np.random.default_rng(0).integers(len(means), size=(RESAMPLES, len(means)))
        low, high = np.exp(np.percentile(means[draws].mean(axis=1), (2.5, 97.5)))
        return float(low), float(high)

    @property
    def reached(self) -> float:
        """The share of runs that got within FACTOR."""
        return sum(run.trials_to(FACTOR) is not None for run in self.runs) / len(self.runs)

    @property
    def final(self) -> float:
        """Geometric mean of best found / optimum."""
        return self.curve([max(run.cell.trials for run in self.runs)])[0]

    @property
    def propose_ms(self) -> float:
        """For each candidate that was proposed."""
        return 1e3 * sum(run.propose_sec for run in self.runs) / sum(run.played for run in self.runs)

    @property
    def fit_ms(self) -> float:
        """Of the cost model, for each candidate that was proposed."""
        return 1e3 * sum(run.fit_sec for run in self.runs) / sum(run.played for run in self.runs)

    def curve(self, at: Sequence[int]) -> list[float]:
        """Geometric mean of best so far / optimum after some trials."""
        return [_geometric(np.log([min(WORST, run.after(trial)) for run in self.runs])) for trial in at]

    def as_json(self) -> dict[str, Any]:
        budget = max(run.cell.trials for run in self.runs)
        return {
            "kind": self.kind,
            "combination": self.combination.key,
            "runs": len(self.runs),
            "trials_to_1.05x": self.trials,
            "trials_interval": self.trials_interval,
            "reached": self.reached,
            "final": self.final,
            "propose_ms": self.propose_ms,
            "fit_ms": self.fit_ms,
            "curve": [round(ratio, 4) for ratio in self.curve(range(1, budget + 1))],
        }

    def _logs_by_arena(self) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        found = defaultdict[str, list[float]](list)
        for run in self.runs:
            found[run.cell.arena].append(np.log(run.trials_to(FACTOR) or run.cell.trials))
        return [np.array(logs) for logs in found.values()]


def summarise(finished: Iterable[Finished]) -> list[Figures]:
    """By kind of arena and combination, the fewest trials first within a kind."""
    groups = defaultdict[tuple[str, Combination], list[Finished]](list)
    for each in finished:
        groups[each.cell.kind, each.cell.combination].append(each)
    figures = [Figures(kind, combination, tuple(runs)) for (kind, combination), runs in groups.items()]
    return sorted(figures, key=lambda each: (each.kind, each.trials, each.final))


def _geometric(logs: Any) -> float:
    return float(np.exp(np.mean(logs)))
