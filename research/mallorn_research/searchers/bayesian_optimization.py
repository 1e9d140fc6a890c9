"""Bayesian optimisation: a Gaussian process on a task's times; three acquisition functions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import ndtr

from mallorn.costmodels.base import Column
from mallorn.searchers.algorithms.arm_credit import compute_arm_credit
from mallorn.searchers.base import Proposal, Trial, proposal_method_of
from mallorn.searchers.failure_and_build_time_penalty import penalise_failures
from mallorn.searchers.fill_round import Filter
from mallorn.searchers.learning.exploring_learner import squared_distances
from mallorn.searchers.pooled_searcher import FillingSearcher, Request, fastest, score
from mallorn_research.samplers.spread_batches import Points, standardize_features

LENGTHS: Final = (0.5, 1.0, 2.0, 4.0)
NOISES: Final = (1e-3, 1e-2, 1e-1)  # variances, relative to the targets' variance of 1
LEAST_VARIANCE: Final = 1e-9


def matern(points: Points, other_points: Points, length: float) -> Points:
    """Return the Matérn 3/2 kernel, which fits functions with kinks, such as latencies."""
    distance = np.sqrt(3.0 * squared_distances(points, other_points)) / length
    return np.asarray((1.0 + distance) * np.exp(-distance))


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    points: Points
    factor: Points  # lower Cholesky factor of the kernel matrix with noise
    weights: Column
    length: float
    noise: float
    centre: float
    scale: float

    @classmethod
    def fit(cls, points: Points, targets: Column) -> "GaussianProcess":
        """Fit a process with the likeliest of a few kernel lengths and noise variances."""
        centre, scale = float(targets.mean()), float(targets.std()) or 1.0
        unit = (targets - centre) / scale
        kernels = {length: matern(points, points, length) for length in LENGTHS}
        fits = []
        for length, noise in product(LENGTHS, NOISES):
            noisy = kernels[length] + noise * np.eye(len(points))
            factor = np.asarray(np.linalg.cholesky(noisy), dtype=np.float64)
            half = np.asarray(solve_triangular(factor, unit, lower=True), dtype=np.float64)
            likelihood = -0.5 * half @ half - np.log(np.diag(factor)).sum()
            fits.append((float(likelihood), length, noise, factor, half))
        _, length, noise, factor, half = max(fits, key=lambda fitted: fitted[0])
        weights = np.asarray(solve_triangular(factor.T, half), dtype=np.float64)
        return cls(points, factor, weights, length, noise, centre, scale)

    def posterior(self, points: Points) -> "Posterior":
        """Return the posterior at other points, which can be conditioned further."""
        cross = matern(self.points, points, self.length)
        mean = self.centre + self.scale * (cross.T @ self.weights)
        rows = np.asarray(solve_triangular(self.factor, cross, lower=True), dtype=np.float64)
        return Posterior(self, points, mean, rows)


class Posterior:
    """The posterior at a pool of points, which can be conditioned on assumed values."""

    def __init__(self, process: GaussianProcess, points: Points, mean: Column, rows: Points) -> None:
        self.mean, self._process, self._points = mean, process, points
        self._rows = rows
        self._variance = np.maximum(LEAST_VARIANCE, 1.0 - (rows**2).sum(axis=0))

    @property
    def std(self) -> Column:
        """Standard deviations in the units of the targets."""
        return np.asarray(self._process.scale * np.sqrt(self._variance))

    def condition_on(self, line: int) -> None:
        """Condition on the predicted mean at index `line`; nearby deviations shrink."""
        similar = matern(self._points[line : line + 1], self._points, self._process.length)[0]
        residual = similar - self._rows[:, line] @ self._rows
        row = residual / np.sqrt(self._variance[line] + self._process.noise)
        self._rows = np.vstack([self._rows, row])
        self._variance = np.maximum(LEAST_VARIANCE, self._variance - row**2)


# Takes mean, deviation, best target so far and exploration factor; higher results are better.
Acquisition = Callable[[Column, Column, float, float], Column]

MOST_DEVIATIONS: Final = 2.0  # deviations of the confidence bound at full exploration


def expected_improvement(mean: Column, std: Column, best: float, exploration: float) -> Column:
    gap = best - exploration * std.mean() - mean
    z = gap / std
    return np.asarray(gap * ndtr(z) + std * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi))


def probability_of_improvement(mean: Column, std: Column, best: float, exploration: float) -> Column:
    return np.asarray((best - exploration * std.mean() - mean) / std)  # ranks as the probability does


def lower_bound(mean: Column, std: Column, best: float, exploration: float) -> Column:
    return np.asarray(best - (mean - MOST_DEVIATIONS * exploration * std))


ACQUISITIONS: Final[dict[str, Acquisition]] = {
    "ei": expected_improvement,
    "pi": probability_of_improvement,
    "lcb": lower_bound,
}
ROWS: Final = 192  # most rows that the process is fit to
FEWEST: Final = 8  # timed trials that a fit needs


@dataclass(eq=False, kw_only=True)
class BayesianOptimisation(FillingSearcher):
    """Divides a batch among three acquisition functions by their credit for earlier trials.

    The pool has mutants of the best candidates and random ones; a cost model, if there is
    one, only halves the pool. After each choice the process is conditioned on the chosen
    point's mean (kriging believer), so that the batch is diverse. The sampler is not used.
    """

    considered: int = 4096
    kept: int = 2048
    elite: int = 48

    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        trials = [trial for trial in request.history if trial.time_us is not None]
        if len(trials) < FEWEST:
            return []
        space, rng = request.space, request.rng
        elite = fastest(request.history, self.elite).candidates
        half = self.considered // 2
        parents = [elite[index] for index in rng.integers(len(elite), size=half)]
        mutants = space.mutate_all(rng, parents)
        far_mutants = space.mutate_all(rng, mutants[: half // 2])
        strangers = space.sample(rng, half - len(far_mutants))
        pool = score(space, request.model, candidate_filter.fresh([*mutants, *far_mutants, *strangers]))
        pool = penalise_failures(space, request.history, pool, rng)
        order = rng.permutation(len(pool))
        order_by_score = order[np.argsort(-pool.prediction.mean[order], kind="stable")]
        pool = pool.without(order_by_score[self.kept :])
        if not len(pool):
            return []

        rows = select_spread_trials(trials, ROWS)
        features = space.features([trial.candidate for trial in rows])
        points = standardize_features(np.vstack([features, pool.features]))
        targets = np.log([float(trial.time_us or np.inf) for trial in rows])
        posterior = GaussianProcess.fit(points[: len(rows)], targets).posterior(points[len(rows) :])
        credit = compute_arm_credit(request.history, tuple(ACQUISITIONS), proposal_method_of)
        shares = credit.shares(0.15, 0.15, 0.15)
        turns = rng.choice(tuple(ACQUISITIONS), size=4 * request.count, p=shares / shares.sum())

        # Pick candidates and check that they are valid, until the batch is full.
        picks = _pick_by_turns(posterior, targets, turns.tolist())
        batch: list[Proposal] = []
        while next_picks := list(islice(picks, request.count - len(batch))):
            valid = set(candidate_filter.valid(pool.candidates[row] for row, _ in next_picks))
            gain = targets.min() - posterior.mean
            batch += [
                Proposal(pool.candidates[row], float(gain[row]), name)
                for row, name in next_picks
                if pool.candidates[row] in valid
            ]
        return batch


def _pick_by_turns(posterior: Posterior, targets: Column, turns: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the index of the point that is best by each acquisition function of `turns`,
    and the function's name. Each point is yielded once."""
    best = float(targets.min())
    exploration = exploration_factor(posterior.std, targets)
    is_open = np.ones(len(posterior.mean), dtype=np.bool_)
    for name in turns[: len(is_open)]:
        value = ACQUISITIONS[name](posterior.mean, posterior.std, best, exploration)
        line = int(np.where(is_open, value, -np.inf).argmax())
        is_open[line] = False
        posterior.condition_on(line)
        yield line, name


def exploration_factor(std: Column, targets: Column) -> float:
    """Return Kernel Tuner's exploration factor: low for a certain process or a far best."""
    sure = float(std.mean()) / max(1e-9, float(targets.std()))
    return min(1.0, sure * float(np.exp(targets.min() - targets.mean())))


def select_spread_trials(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return up to `count` trials: a third fastest, a third newest, others evenly spaced."""
    if len(trials) <= count:
        return list(trials)
    third = count // 3
    order = sorted(range(len(trials)), key=lambda line: float(trials[line].time_us or np.inf))
    selected_lines = set(order[:third]) | set(range(len(trials) - third, len(trials)))
    other_lines = [line for line in range(len(trials)) if line not in selected_lines]
    picks = np.linspace(0, len(other_lines) - 1, count - len(selected_lines)).round().astype(int)
    return [trials[line] for line in sorted(selected_lines | {other_lines[line] for line in picks})]
