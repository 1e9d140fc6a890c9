"""Rounds replayed on recorded candidates: what a model puts into each fresh batch, and how it orders it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import CostModel, Matrix, Vector
from mallorn.costmodels.evaluation import rebase_labels
from mallorn.costmodels.labels import bounded_sample
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.searchers.batch_sampler import BatchSampler, ScoredPool
from mallorn.searchers.space import Candidate
from mallorn.workers.round.train_cost_model import MAX_ROWS

Lines = NDArray[np.int64]
Chosen = tuple[Lines, Vector | None]  # a batch, and what the model expected of it
MakeModel = Callable[[], CostModel]
APART: Final = 0.03  # of log time: nearer ones may have changed places by the noise of one timing


@dataclass(frozen=True, slots=True)
class Batch:
    """A fresh batch and how it was ordered; NaN where nothing can be told."""

    trials: int  # of its task before it
    left: float  # share of the recording that it was chosen from
    pairs: float
    pairs_apart: float
    best: float  # its fastest over the best of the whole recording


@dataclass(frozen=True, slots=True)
class Pool:
    """The recorded candidates of one task: their rows in the family's arrays, and what opens its search."""

    lines: Lines
    first: Lines


@dataclass(frozen=True, slots=True)
class Family:
    """Recorded tasks that share a model. Labels are log(best latency of the task / latency)."""

    candidates: Sequence[Candidate]
    features: Matrix  # as the model sees them
    decisions: Matrix  # as samplers see them
    labels: Vector
    groups: Lines
    pools: Sequence[Pool]


def play(
    family: Family, make: MakeModel | None, sampler: BatchSampler, *, rounds: int, batch: int, seed: int
) -> Iterator[tuple[int, Batch]]:
    """All tasks in turn, a batch each, with a model that is fitted between the turns, as in a job.

    The first batch of a task is the same for all models. Without a model every batch is drawn at random.
    """
    rng = np.random.default_rng(seed)
    known = [_opening(pool, batch, seed) for pool in family.pools]
    yield from _judged(family, [(lines, None) for lines in known], [0] * len(known))
    for _ in range(1, rounds):
        model = make() if make else None
        if model is not None:
            _fit(model, family, known, seed)
        chosen = [
            _choose(family, pool, seen, model, sampler, batch, rng)
            for pool, seen in zip(family.pools, known, strict=True)
        ]
        before = [len(seen) for seen in known]
        yield from _judged(family, chosen, before)
        known = [np.concatenate([seen, lines]) for seen, (lines, _) in zip(known, chosen, strict=True)]


def _opening(pool: Pool, batch: int, seed: int) -> Lines:
    """What searches open with, filled up at random."""
    others = np.random.default_rng(seed).permutation(np.setdiff1d(pool.lines, pool.first))
    return np.concatenate([pool.first, others])[:batch]


def _fit(model: CostModel, family: Family, known: Sequence[Lines], seed: int) -> None:
    lines = np.concatenate(known)
    labels = rebase_labels(family.labels[lines], family.groups[lines])
    kept = bounded_sample(labels, MAX_ROWS, seed=len(lines))
    model.fit(family.features[lines[kept]], labels[kept], family.groups[lines[kept]], seed=seed)


def _choose(
    family: Family,
    pool: Pool,
    seen: Lines,
    model: CostModel | None,
    sampler: BatchSampler,
    batch: int,
    rng: np.random.Generator,
) -> Chosen:
    free = np.setdiff1d(pool.lines, seen)
    if model is None:
        return rng.permutation(free)[:batch], None
    if not len(free):
        return free, np.empty(0, dtype=np.float32)
    prediction = model.predict(family.features[free])
    scored = ScoredPool([family.candidates[at] for at in free], family.decisions[free], prediction)
    chosen = sampler.choose(scored, batch, rng)
    return free[chosen], prediction.mean[chosen]


def _judged(family: Family, chosen: Sequence[Chosen], before: Sequence[int]) -> Iterator[tuple[int, Batch]]:
    for number, (lines, scores) in enumerate(chosen):
        if len(lines):
            left = 1 - before[number] / len(family.pools[number].lines)
            truth = family.labels[lines]
            best = float(np.exp(-truth.max()))
            yield number, Batch(before[number], left, *_pairs(scores, truth), best)


def _pairs(scores: Vector | None, truth: Vector) -> tuple[float, float]:
    if scores is None:
        return float("nan"), float("nan")
    alike = np.zeros(len(truth), dtype=np.int64)
    return pairwise_accuracy(scores, truth, alike), pairwise_accuracy(scores, truth, alike, tie=APART)


def best_after(batches: Sequence[Batch], trials: int) -> float:
    """The best of the batches that began within so many trials, over the recording's best."""
    return min(each.best for each in batches if each.trials < trials)


def by_task(played: Iterator[tuple[int, Batch]]) -> Mapping[int, list[Batch]]:
    """The batches of each task, oldest first."""
    found: dict[int, list[Batch]] = {}
    for number, batch in played:
        found.setdefault(number, []).append(batch)
    return found
