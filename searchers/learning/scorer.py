"""Score decision vectors during a search, and remember them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from costmodels.base import Column, CostModel, Indices
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.pooled_searcher import score
from searchers.space import Candidate, Matrix, Sketch, Space
from searchers.tile_factorizations import Rows


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Rows of one sketch, their features and their scores (`promise`)."""

    sketch: Sketch
    rows: Rows
    features: Matrix
    promise: Column

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, lines: Indices) -> "ScoredRows":
        return ScoredRows(self.sketch, self.rows[lines], self.features[lines], self.promise[lines])


class Scorer:
    """Scores candidates and remembers each one of a round, with its origin and score.

    The score (`promise`) is the model's prediction of log(best latency / latency), plus a
    share of its spread. Differences of scores serve as rewards.
    """

    def __init__(self, space: Space, model: CostModel, *, optimism: float) -> None:
        self.space = space
        self.model = model
        self._optimism = optimism
        self._origins: dict[Candidate, str] = {}
        self._seen: dict[str, list[ScoredRows]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def score_rows(self, views: Sequence[tuple[Sketch, Rows]], origin: str) -> list[ScoredRows]:
        """Score rows of several sketches with one call of the model; one result per view."""
        candidates = [candidate for sketch, rows in views for candidate in sketch.candidates(rows.tolist())]
        pool = score(self.space, self.model, candidates)
        promise = pool.promise(self._optimism).astype(np.float64)
        results, end = [], 0
        for sketch, rows in views:
            lines = slice(end, end := end + len(rows))
            results.append(ScoredRows(sketch, rows, pool.features[lines], promise[lines]))
            self._remember(results[-1], candidates[lines], origin)
        return results

    def _remember(self, scored_rows: ScoredRows, candidates: Sequence[Candidate], origin: str) -> None:
        new = {c: index for index, c in enumerate(candidates) if c not in self._origins}
        self._origins |= dict.fromkeys(new, origin)
        remembered = self._seen.setdefault(scored_rows.sketch.key, [])
        remembered.append(scored_rows.at(np.array(list(new.values()), dtype=np.int64)))

    def score_candidates(self, candidates: Sequence[Candidate], origin: str) -> list[ScoredRows]:
        """Score candidates of any sketch; return one result per sketch."""
        places = places_by_sketch([candidate.sketch for candidate in candidates])
        present = [sketch for sketch in self.space.sketches if sketch.key in places]
        views = [(sketch, decision_rows(sketch, candidates, places[sketch.key])) for sketch in present]
        return self.score_rows(views, origin) if views else []

    def memory(self) -> list[ScoredRows]:
        """Return all candidates scored so far, each once; one result per sketch."""
        memory = []
        for sketch in self.space.sketches:
            if results := self._seen.get(sketch.key):
                columns = [
                    (scored_rows.rows, scored_rows.features, scored_rows.promise) for scored_rows in results
                ]
                memory.append(ScoredRows(sketch, *map(np.concatenate, zip(*columns, strict=True))))
        return memory

    def starts(self, count: int, greed: float, rng: np.random.Generator) -> list[ScoredRows]:
        """Draw scored candidates with weights exp(-greed * relative loss of speed)."""
        memory = self.memory()
        promise = np.concatenate([scored_rows.promise for scored_rows in memory])
        loss = np.expm1(np.minimum(20.0, promise.max() - promise))
        weight = np.exp(-greed * loss)
        lines = rng.choice(len(promise), size=count, p=weight / weight.sum())
        return list(_split(memory, np.sort(lines)))

    def pool(self) -> dict[Candidate, str]:
        """Return every scored candidate with its origin."""
        return dict(self._origins)


def _split(memory: Sequence[ScoredRows], drawn_lines: Indices) -> Iterable[ScoredRows]:
    begin = 0
    for scored_rows in memory:
        lines = drawn_lines[(drawn_lines >= begin) & (drawn_lines < begin + len(scored_rows))] - begin
        begin += len(scored_rows)
        if len(lines):
            yield scored_rows.at(lines)
