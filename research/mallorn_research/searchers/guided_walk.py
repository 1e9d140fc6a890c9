"""A guided walk around the best measured candidates, in directions that gave gains before."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Column
from mallorn.searchers.base import WALK
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.learning.exploring_learner import squared_distances
from mallorn.searchers.pooled_searcher import PooledSearcher, Request, TimedCandidates, fastest, score
from mallorn.searchers.roller.rank_candidates import Constructor
from mallorn.searchers.space import Candidate, Space
from mallorn_research.searchers.decision_vector_encoding import Points, genes_of

NEIGHBOURS = 3  # steps taken from each measured candidate
DOUBT = 1.0  # weight of the prior that a step has no gain


@dataclass(frozen=True)
class StepGains:
    """Steps between measured neighbours: unit vectors, and log speed-ups per unit."""

    directions: Points
    gains: Column

    def expected_gains(self, moves: Points) -> Column:
        """Return the mean gain of measured steps, weighted by their cosine to each move.
        Steps in the opposite direction count with the opposite sign."""
        lengths = np.linalg.norm(moves, axis=1)
        cosines = moves @ self.directions.T / np.maximum(lengths, 1e-9)[:, None]
        weighted_gains = (cosines * np.abs(cosines)) @ self.gains
        return np.asarray(lengths * weighted_gains / (DOUBT + (cosines**2).sum(axis=1)))


class Directions:
    """Measured steps of each sketch, by which the gain of new steps is predicted."""

    def __init__(self, space: Space, best_trials: TimedCandidates) -> None:
        self._space = space
        best, slowdown = best_trials.candidates, best_trials.slowdown
        self._steps = {
            key: _measure_step_gains(self._points(best, key, lines), slowdown[lines])
            for key, lines in places_by_sketch([candidate.sketch for candidate in best]).items()
            if len(lines) > 1
        }

    def expected_gains(self, old: Sequence[Candidate], new: Sequence[Candidate]) -> Column:
        """Return each step's expected log speed-up; 0 for a sketch without measured steps.
        Both ends of a step must have the same sketch."""
        gains = np.zeros(len(old))
        for key, lines in places_by_sketch([candidate.sketch for candidate in old]).items():
            if steps := self._steps.get(key):
                moves = self._points(new, key, lines) - self._points(old, key, lines)
                gains[lines] = steps.expected_gains(moves)
        return gains

    def _points(self, candidates: Sequence[Candidate], key: str, lines: Sequence[int]) -> Points:
        sketch = self._space.by_key[key]
        return genes_of(sketch).encode(decision_rows(sketch, candidates, lines))


def _measure_step_gains(points: Points, slowdown: Column) -> StepGains:
    distances = squared_distances(points, points)
    np.fill_diagonal(distances, np.inf)
    neighbours = np.argsort(distances, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(points) - 1)]
    start = np.repeat(np.arange(len(points)), neighbours.shape[1])
    moves = points[neighbours.ravel()] - points[start]
    lengths = np.maximum(np.linalg.norm(moves, axis=1), 1e-9)
    gains = slowdown[start] - slowdown[neighbours.ravel()]
    return StepGains(moves / lengths[:, None], gains / lengths)


@dataclass(eq=False, kw_only=True)
class Guided(PooledSearcher):
    """Walks from the best measured candidates, each time to the best of random neighbours.

    Steps are rated by the gains of similar measured steps and by the analytic time model of
    `mallorn.searchers.roller`. If there is a cost model, its score is used, and these two
    only add hints.
    """

    walkers: int = 32
    neighbours: int = 8
    steps: int = 14
    blind_steps: int = 2
    remembered: int = 128
    hint: float = 0.25
    noise: float = 0.05

    def pool(self, request: Request) -> dict[Candidate, str]:
        """Return all candidates that were rated on the walks, best first."""
        space, model, rng = request.space, request.model, request.rng
        best_trials = fastest(request.history, self.remembered)
        directions = Directions(space, best_trials)
        # Walkers start at the best measured candidates, then at defaults and random ones.
        best = best_trials.candidates[: self.walkers * 3 // 4]
        fillers = [*space.defaults(), *space.sample(rng, self.walkers)][: self.walkers - len(best)]
        filler_values = -log_slowdowns(space, fillers) - float(
            best_trials.slowdown.mean() if best_trials else 0.0
        )
        positions = [*best, *fillers]
        values = np.concatenate([-best_trials.slowdown[: len(best)], filler_values])
        rated: dict[Candidate, float] = {}
        for _ in range(self.steps if model else self.blind_steps):
            origin = [position for position in positions for _ in range(self.neighbours)]
            neighbours = space.mutate_all(rng, origin)
            prior = log_slowdowns(space, [*origin, *neighbours])
            hints = (
                directions.expected_gains(origin, neighbours) + prior[: len(origin)] - prior[len(origin) :]
            )
            # The expected log speed of each neighbour, relative to the best measured.
            if model is None:
                value = np.repeat(values, self.neighbours) + hints
            else:
                value = score(space, model, neighbours).optimistic_scores(self.optimism) + self.hint * hints
            rated.update(zip(neighbours, value.tolist(), strict=True))
            # Each walker takes the best of its neighbours; noise breaks ties.
            noisy = value + self.noise * rng.gumbel(size=len(value))
            best_neighbour = noisy.reshape(-1, self.neighbours).argmax(axis=1)
            best_lines = np.arange(len(best_neighbour)) * self.neighbours + best_neighbour
            positions, values = [neighbours[line] for line in best_lines], value[best_lines]
        best_first = sorted(rated, key=lambda candidate: -rated[candidate])
        return dict.fromkeys(best_first if model else best_first[: 2 * request.count], WALK)


def log_slowdowns(space: Space, candidates: Sequence[Candidate]) -> Column:
    """Return log(estimated time / least one) of each candidate; 0 without a time model."""
    constructor = Constructor(space.nests, space.machine)
    log_us = np.full(len(candidates), np.nan)
    for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
        sketch = space.by_key[key]
        us = constructor.time_us(sketch, decision_rows(sketch, candidates, lines))
        if us is not None:
            log_us[lines] = np.log(us)
    modelled = log_us[~np.isnan(log_us)]
    return np.asarray(np.nan_to_num(log_us - modelled.min(initial=np.inf), nan=0.0))
