"""Learns what the best completion of a partial schedule reaches, by value iteration on measured rows."""

from typing import ClassVar, Final

import numpy as np
import xgboost
from numpy.typing import NDArray

from costmodels.base import Groups, Matrix, Vector
from costmodels.decision_model_interfaces import ValuesPrefixes
from costmodels.ensemble_spread import LARGEST, finite, importance
from costmodels.partial_schedules import LAST, prefixes
from costmodels.prefix_boosters import PrefixBoosters
from costmodels.value_iteration_states import ValueIterationStates, journeys_of
from costmodels.xgboost_ensemble import as_data, grow, opinions

SWEEPS: Final = 4
OPTIONS: Final = 6  # ways to go on that are looked at from each state
MEMBERS: Final = 2  # boosters of the last sweep


class ValueModel(PrefixBoosters, ValuesPrefixes):
    """Boosters on whole schedules, and boosters on prefixes whose targets come from value iteration.

    After "Value Learning for Throughput Optimization of Deep Neural Networks" (MLSys'21): the value of a
    partial schedule is the best that any completion of it reaches, so a beam may rank prefixes without
    completing them. States are prefixes of measured candidates. A state's target is the best of what was
    measured behind it and of the values, by the sweep before, of states that sampled decisions lead to; at
    the end of the way the model of whole schedules is asked.

    Where it differs: the paper learns an LSTM over the stages of a pipeline, and measures more while it
    learns. Here a step is a tile factor of one task, boosters take open decisions as missing values, and the
    rows of the dataset are all the measurements there are. Decisions are sampled from other rows of the same
    task and sketch, as far as factors still multiply up. A step may decide several things at once, so a few
    sweeps carry values from the ends to the beginnings.
    """

    KIND: ClassVar[str] = "value"
    opener: ClassVar[str | None] = "beam"

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self._whole.fit(features, labels, groups, seed=seed)
        self._boosters = []
        if len(labels):
            rng = np.random.default_rng([seed, 1])
            journeys = journeys_of(finite(features), labels, groups, rng)
            self._boosters = self._swept(journeys, rng)

    def _swept(self, journeys: ValueIterationStates, rng: np.random.Generator) -> list[xgboost.Booster]:
        states = prefixes(journeys.rows[journeys.at], journeys.steps)
        boosters: list[xgboost.Booster] = []
        for sweep in range(SWEEPS):
            target = np.maximum(journeys.seen, self._ahead(journeys, boosters, rng))
            target = np.minimum(target, np.float32(0.0))
            data, weight = as_data(states, target), importance(target)
            boosters = [grow(data, weight, rng) for _ in range(MEMBERS if sweep == SWEEPS - 1 else 1)]
        return boosters

    def _ahead(
        self, journeys: ValueIterationStates, boosters: list[xgboost.Booster], rng: np.random.Generator
    ) -> Vector:
        """The best value that any of the sampled ways leads to."""
        best = np.full(len(journeys.at), -np.inf, dtype=np.float32)
        for _ in range(OPTIONS):
            way = journeys.onward(rng, to_the_end=not boosters)
            worth = self._values(boosters, prefixes(way.rows, way.steps), way.steps >= LAST)
            best[way.states] = np.maximum(best[way.states], worth)
        return best

    def _values(self, boosters: list[xgboost.Booster], rows: Matrix, complete: NDArray[np.bool_]) -> Vector:
        worth = np.empty(len(rows), dtype=np.float32)
        if complete.any():
            worth[complete] = self._whole.predict(rows[complete]).mean
        if not complete.all():
            worth[~complete] = opinions(boosters, rows[~complete]).mean(axis=0)
        return worth

    def value(self, features: Matrix) -> Vector:
        complete = np.asarray(~np.isnan(features).any(axis=1))
        if not self._boosters:
            return self._whole.predict(features).mean
        return self._values(self._boosters, np.clip(features, -LARGEST, LARGEST), complete)
