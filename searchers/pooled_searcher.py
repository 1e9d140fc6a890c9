"""Base classes of searchers: batches of defaults, chosen and random candidates; choices from a pool."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

import numpy as np

from mallorn.costmodels.base import FAILED_LABEL, Column, CostModel, Indices, Prediction
from mallorn.costmodels.views import DECISIONS
from mallorn.searchers.base import SYNTHESIS, Proposal, Searcher, Trial
from mallorn.searchers.failure_and_build_time_penalty import penalise_failures
from mallorn.searchers.fill_round import Filter, propose_defaults, random_fill
from mallorn.searchers.sampler import Sampler, ScoredPool, Synthesiser
from mallorn.searchers.space import Candidate, Space


@dataclass(frozen=True)
class TimedCandidates:
    """Timed candidates, with log(latency / best latency) for each."""

    candidates: list[Candidate]
    slowdown: Column

    def __len__(self) -> int:
        return len(self.candidates)

    def draw(self, rng: np.random.Generator, count: int, temperature: float) -> list[Candidate]:
        """Draw candidates with replacement; at low temperature, mostly fast ones."""
        if not self.candidates:
            return []
        heat = np.exp(-self.slowdown / temperature)
        lines = rng.choice(len(self), size=count, p=heat / heat.sum())
        return [self.candidates[index] for index in lines]


def fastest(history: Sequence[Trial], count: int) -> TimedCandidates:
    """Return the fastest `count` candidates of the history that have a time."""
    return _timed(sorted(history, key=lambda trial: trial.time_us or np.inf)[:count], history)


def latest(history: Sequence[Trial], count: int) -> TimedCandidates:
    """Return the timed candidates among the last `count` trials, oldest first. Their
    slowdown is relative to the best of the entire history."""
    return _timed(history[max(0, len(history) - count) :], history)


def _timed(trials: Sequence[Trial], history: Sequence[Trial]) -> TimedCandidates:
    best = min((trial.time_us for trial in history if trial.time_us is not None), default=np.inf)
    pairs = [(trial.candidate, trial.time_us) for trial in trials if trial.time_us is not None]
    times = np.array([time_us for _, time_us in pairs], dtype=np.float64)
    return TimedCandidates([candidate for candidate, _ in pairs], np.log(times / best))


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `Searcher.propose`, except that `count` excludes the default and
    random candidates, which FillingSearcher adds itself."""

    space: Space
    history: Sequence[Trial]
    model: CostModel | None
    count: int
    rng: np.random.Generator


@dataclass(eq=False)
class FillingSearcher(Searcher):
    """Proposes the space's defaults, then the subclass's choice, then random candidates."""

    sampler: Sampler | None = None
    _: KW_ONLY
    random_share: float = 0.05

    @abstractmethod
    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        """Return at most `request.count` (>= 1) proposals that `candidate_filter` passed."""

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        candidate_filter = Filter(space, history)
        chosen = propose_defaults(space, history, candidate_filter, count)
        left = count - len(chosen)
        if to_choose := left - int(rng.binomial(left, self.random_share)):
            chosen += self.choose(Request(space, history, model, to_choose, rng), candidate_filter)
        return chosen + random_fill(space, candidate_filter, count - len(chosen), rng)


class TopK(Sampler):
    """Takes candidates of highest score, but a share `epsilon` at random from the others."""

    def __init__(self, epsilon: float = 0.05, *, optimism: float = 0.5) -> None:
        self.epsilon, self.optimism = epsilon, optimism

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        order = np.argsort(-pool.optimistic_scores(self.optimism), kind="stable")
        explored = rng.binomial(min(count, len(pool)), self.epsilon)
        best, remaining = np.split(order, [max(0, min(count, len(pool)) - explored)])
        return np.concatenate([best, rng.permutation(remaining)[:explored]]).astype(np.int64)


class Contextual(Sampler):
    """Chooses as TopK does, with more random candidates if the model is uncertain.

    exp(score) is the speed relative to the task's best; multiplied by the score's
    deviation, it is the uncertainty of that speed. The random share is its bounded mean.
    """

    def __init__(self, optimism: float = 0.5, *, least: float = 0.02, most: float = 0.5) -> None:
        self.optimism, self.least, self.most = optimism, least, most

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        return TopK(self.random_share(pool), optimism=self.optimism).choose(pool, count, rng)

    def random_share(self, pool: ScoredPool) -> float:
        if not len(pool):
            return self.least
        speed = np.exp(np.minimum(pool.prediction.mean, 0.0))
        return float(np.clip(np.mean(speed * pool.prediction.std), self.least, self.most))


BESIDE: Final = 128  # fastest measured candidates that a Synthesiser gets


@dataclass(eq=False, kw_only=True)
class PooledSearcher(FillingSearcher):
    """A FillingSearcher whose sampler chooses from a pool of candidates that subclasses
    fill. Only chosen candidates are checked for validity. Candidates that resemble earlier
    failures are chosen less often."""

    optimism: float = 0.5  # deviations added to scores while a subclass fills the pool

    @abstractmethod
    def pool(self, request: Request) -> dict[Candidate, str]:
        """Return candidates to score, with their origins; some may be measured already."""

    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        origins = self.pool(request)
        fresh_pool = score(request.space, request.model, candidate_filter.fresh(origins))
        pool = penalise_failures(request.space, request.history, fresh_pool, request.rng)
        sampler = self.sampler or TopK()
        candidates: list[Candidate] = []
        if isinstance(sampler, Synthesiser):
            measured_pool = score(request.space, request.model, fastest(request.history, BESIDE).candidates)
            composed = sampler.compose(request.space, pool, measured_pool, request.count, request.rng)
            candidates = candidate_filter.valid(composed)[: request.count]
            checked = set(composed)
            pool = pool.without(np.flatnonzero([candidate in checked for candidate in pool.candidates]))
        while len(candidates) < request.count and len(pool):
            lines = sampler.choose(pool, request.count - len(candidates), request.rng)
            candidates += candidate_filter.valid([pool.candidates[index] for index in lines])
            pool = pool.without(lines)

        # Proposals get the model's own predictions, without penalties.
        created = score(request.space, request.model, [each for each in candidates if each not in origins])
        scored = fresh_pool.joined_with(created)
        predicted = dict(zip(scored.candidates, scored.prediction.mean.tolist(), strict=True))
        return [Proposal(each, predicted[each], origins.get(each, SYNTHESIS)) for each in candidates]


def score(space: Space, model: CostModel | None, candidates: Sequence[Candidate]) -> ScoredPool:
    """Return a pool of candidates with features and predictions (0 without a model)."""
    features = space.features(candidates)
    if model is None or not candidates:
        zeros = np.zeros(len(candidates), dtype=np.float32)
        return ScoredPool(candidates, features, Prediction(zeros, zeros))
    if model.view == DECISIONS.name:
        return ScoredPool(candidates, features, model.predict(features))
    rows = space.features_in_view(model.view, candidates)
    # Candidates that cannot be lowered (all-NaN rows) get a lower score than all others.
    predicted = model.predict(rows)
    is_unknown = np.isnan(rows).all(axis=1)
    worst = predicted.mean.min() + np.float32(FAILED_LABEL)
    mean = np.where(is_unknown, worst, predicted.mean)
    return ScoredPool(candidates, features, Prediction(mean, predicted.std))
