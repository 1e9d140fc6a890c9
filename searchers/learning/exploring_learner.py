"""Learner, the base class of learning searchers, and its substitute for a cost model."""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Column, CostModel, Groups, Indices, Matrix, Prediction, Vector
from mallorn.costmodels.labels import bounded_sample, is_informative, labels
from mallorn.searchers.base import DEFAULT, MEASURED, RANDOM, Proposal, Trial
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.fill_round import Filter
from mallorn.searchers.pooled_searcher import PooledSearcher, Request, score
from mallorn.searchers.space import Candidate, Sketch, Space
from mallorn.searchers.tile_factorizations import Rows

SERIAL = 1 << 18  # multiplications up to which OpenBLAS uses only the calling thread


def multiply_in_blocks(left: NDArray[np.floating], right: NDArray[np.floating]) -> Column:
    """Return left @ right, computed in blocks that OpenBLAS does not spread over threads.
    On a busy host, threads that wait for each other take far longer. The result does not
    depend on the number of cores."""
    block = max(1, SERIAL // max(1, right.size))
    if len(left) <= block:
        return np.asarray(left @ right, dtype=np.float64)
    parts = [left[start : start + block] @ right for start in range(0, len(left), block)]
    return np.asarray(np.concatenate(parts), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Decision vectors (`rows`) of one sketch, with features and scores (`promise`)."""

    sketch: Sketch
    rows: Rows
    features: Matrix
    promise: Column

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, lines: Indices) -> "ScoredRows":
        return ScoredRows(self.sketch, self.rows[lines], self.features[lines], self.promise[lines])


class Scorer:
    """Scores candidates, and remembers all candidates of a round with origins and scores.
    A score (`promise`) is the model's prediction of log(best latency / latency), plus a
    share of its deviation. Differences of scores serve as rewards."""

    def __init__(self, space: Space, model: CostModel, *, optimism: float) -> None:
        self.space, self.model, self._optimism = space, model, optimism
        self._origins: dict[Candidate, str] = {}
        self._seen: dict[str, list[ScoredRows]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def score_rows(self, views: Sequence[tuple[Sketch, Rows]], origin: str) -> list[ScoredRows]:
        """Score pairs of a sketch and its rows in one model call; return one result each."""
        candidates = [candidate for sketch, rows in views for candidate in sketch.candidates(rows.tolist())]
        pool = score(self.space, self.model, candidates)
        promise = pool.optimistic_scores(self._optimism).astype(np.float64)
        results, end = [], 0
        for sketch, rows in views:
            lines = slice(end, end := end + len(rows))
            results.append(ScoredRows(sketch, rows, pool.features[lines], promise[lines]))
            new = {c: index for index, c in enumerate(candidates[lines]) if c not in self._origins}
            self._origins |= dict.fromkeys(new, origin)
            remembered = self._seen.setdefault(sketch.key, [])
            remembered.append(results[-1].at(np.array(list(new.values()), dtype=np.int64)))
        return results

    def score_candidates(self, candidates: Sequence[Candidate], origin: str) -> list[ScoredRows]:
        """Score candidates of any sketch; return one result per sketch."""
        places = places_by_sketch([candidate.sketch for candidate in candidates])
        present = [sketch for sketch in self.space.sketches if sketch.key in places]
        views = [(sketch, decision_rows(sketch, candidates, places[sketch.key])) for sketch in present]
        return self.score_rows(views, origin) if views else []

    def scored_rows_by_sketch(self) -> list[ScoredRows]:
        """Return all candidates scored so far, each once, as one ScoredRows per sketch."""
        memory = []
        for sketch in self.space.sketches:
            if results := self._seen.get(sketch.key):
                columns = [
                    (scored_rows.rows, scored_rows.features, scored_rows.promise) for scored_rows in results
                ]
                memory.append(ScoredRows(sketch, *map(np.concatenate, zip(*columns, strict=True))))
        return memory

    def draw_start_rows(self, count: int, greed: float, rng: np.random.Generator) -> list[ScoredRows]:
        """Draw scored candidates with weights exp(-greed * relative loss of speed)."""
        memory = self.scored_rows_by_sketch()
        promise = np.concatenate([scored_rows.promise for scored_rows in memory])
        weight = np.exp(-greed * np.expm1(np.minimum(20.0, promise.max() - promise)))
        drawn_lines = np.sort(rng.choice(len(promise), size=count, p=weight / weight.sum()))
        starts, begin = [], 0
        for scored_rows in memory:
            end = begin + len(scored_rows)
            lines = drawn_lines[(drawn_lines >= begin) & (drawn_lines < end)] - begin
            if len(lines):
                starts.append(scored_rows.at(lines))
            begin = end
        return starts

    def pool(self) -> dict[Candidate, str]:
        return dict(self._origins)


LENGTHS = (0.25, 0.5, 1.0)  # shares of the typical distance between rows
NOISES = (0.01, 0.1)  # shares of the labels' variance
KEPT = 1e-6  # columns that vary less are rounding noise


class KernelRegression(CostModel):
    """Kernel regression on features; length and noise have the least leave-one-out error."""

    def __init__(self) -> None:
        self._state: dict[str, Column] = {}

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        del groups, seed  # only one task, and nothing random
        self._state = {}
        if not len(labels):
            return
        rows = np.clip(np.nan_to_num(features.astype(np.float64)), -1e6, 1e6)
        centre: Column = rows.mean(axis=0)
        spread: Column = rows.std(axis=0)
        scale: Column = np.where(spread > KEPT, 1 / np.maximum(spread, KEPT), 0.0)
        training_rows, mean = (rows - centre) * scale, labels.mean(dtype=np.float64)
        squared = squared_distances(training_rows, training_rows)
        typical = np.median(squared[squared > 0]) if (squared > 0).any() else 1.0
        fits = [
            _Fit(squared, labels - mean, typical * length**2, noise)
            for length, noise in itertools.product(LENGTHS, NOISES)
        ]
        best = min(fits, key=lambda fit: fit.error)
        self._state = {"centre": centre, "scale": scale, "known": training_rows, "mean": np.array(mean)}
        self._state |= {"length": np.array(best.length), "weights": best.weights}
        self._state["variance"] = np.array(best.variance)

    def predict(self, features: Matrix) -> Prediction:
        """Score the rows; an untrained model predicts 0 with a standard deviation of 1."""
        if not self._state:
            alike = np.zeros(len(features), dtype=np.float32)
            return Prediction(alike, alike + 1)
        s = self._state
        rows = (np.clip(np.nan_to_num(features.astype(np.float64)), -1e6, 1e6) - s["centre"]) * s["scale"]
        similarity = _kernel(squared_distances(rows, s["known"]), float(s["length"]))
        # As if only the nearest row were known.
        spread = np.sqrt(s["variance"] * (1 - similarity.max(axis=1) ** 2))
        score = np.einsum("nk,k->n", similarity, s["weights"]) + s["mean"]
        return Prediction(score.astype(np.float32), spread.astype(np.float32))

    def save(self) -> bytes:
        blob = BytesIO()
        np.savez(blob, **self._state)  # type: ignore[arg-type]
        return blob.getvalue()

    @classmethod
    def load(cls, blob: bytes) -> "KernelRegression":
        model = cls()
        with np.load(BytesIO(blob), allow_pickle=False) as arrays:
            model._state = dict(arrays)
        return model


class _Fit:
    """A regression with one kernel length and noise, and its leave-one-out error."""

    def __init__(self, squared: Column, label: Column, length: float, noise: float) -> None:
        self.length = length
        inverse = np.linalg.inv(_kernel(squared, length) + noise * np.eye(len(label)))
        self.weights = np.einsum("kj,j->k", inverse, label)  # einsum starts no threads
        self.error = float(np.mean((self.weights / np.diag(inverse)) ** 2))
        self.variance = float(label @ self.weights / len(label))


def _kernel(squared: Column, length: float) -> Column:
    return np.asarray(np.exp(-squared / (2 * length)))


def squared_distances(left: Column, right: Column) -> Column:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * multiply_in_blocks(left, right.T)
    return np.asarray(np.maximum(0.0, squares))


MOST = 192  # a third newest, a third best, a third random


class HistorySample(NamedTuple):
    """Measured candidates, best first, with log(best latency / latency)."""

    candidates: list[Candidate]
    label: Vector


def sample_history(history: Sequence[Trial]) -> HistorySample:
    """Return at most MOST measurements, including failures, best first. Lost or withdrawn
    ones, which say nothing about a candidate, are left out."""
    outcomes = [trial.outcome for trial in history]
    group = np.zeros(len(history), dtype=np.int64)
    label = labels([trial.latency_us for trial in history], group, outcomes)
    useful = np.flatnonzero(is_informative(outcomes))
    sampled = useful[bounded_sample(label[useful], MOST, seed=len(history))]
    order = sampled[np.argsort(-label[sampled], kind="stable")]
    return HistorySample([history[index].candidate for index in order], label[order])


@dataclass(eq=False, kw_only=True)
class Learner(PooledSearcher):
    """A PooledSearcher that explores with a Scorer; the pool is all candidates it scored.
    Without a model, kernel regression on the task's measurements scores candidates;
    without measurements, the pool is random."""

    considered: int = 4096
    learning: bool = True  # False: a control, to measure what learning is worth

    @abstractmethod
    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        """Score about `considered` candidates with the scorer, moving towards better ones."""

    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        if request.model is None and (sample := sample_history(request.history)).candidates:
            model = KernelRegression()
            groups = np.zeros(len(sample.candidates), dtype=np.int64)
            model.fit(request.space.features(sample.candidates), sample.label, groups, seed=0)
            request = replace(request, model=model)
        return super().choose(request, candidate_filter)

    def pool(self, request: Request) -> dict[Candidate, str]:
        space, rng = request.space, request.rng
        if request.model is None:
            return dict.fromkeys(space.sample(rng, request.count), RANDOM)
        sample = sample_history(request.history)
        scorer = Scorer(space, request.model, optimism=self.optimism)
        scorer.score_candidates(sample.candidates, MEASURED)
        scorer.score_candidates(space.defaults(), DEFAULT)
        scorer.score_candidates(space.sample(rng, self.considered // 8), RANDOM)
        self.explore(scorer, sample, rng)
        return scorer.pool()
