"""A space of decision vectors: all operations of Space that need no programs, vectorised."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from mallorn.core.registry import resolve
from mallorn.core.values.machine import Machine
from mallorn.costmodels.views import DECISIONS
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Matrix, Sketch, Space
from mallorn.searchers.tile_factorizations import Rows, TileRule


class ListRule:
    """The values of a CATEGORICAL or LOCATION choice, which are drawn by weight."""

    width = 1

    def __init__(self, choice: Choice) -> None:
        self._values = np.array(choice.values, dtype=np.int32)
        weights = np.array(choice.weights or [1.0] * len(choice.values), dtype=np.float64)
        self._weights = weights / weights.sum()
        self._support = self._values[self._weights > 0]

    @property
    def has_alternatives(self) -> bool:
        return len(self._support) > 1

    def sample(self, rng: np.random.Generator, count: int) -> Rows:
        return rng.choice(self._values, size=(count, 1), p=self._weights)

    def mutate(self, rng: np.random.Generator, rows: Rows) -> Rows:
        """Return another value for each row, drawn uniformly, to try rare values too."""
        is_other = self._support != rows
        pick = np.floor(rng.random(len(rows)) * is_other.sum(axis=1)).astype(np.int64)
        values: Rows = self._support[(is_other.cumsum(axis=1) > pick[:, None]).argmax(axis=1)]
        return values[:, None]

    def well_formed(self, rows: Rows) -> NDArray[np.bool_]:
        return np.isin(rows[:, 0], self._values)


class SketchRules:
    """The choices of one sketch, and their columns in the decision vector."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.rules = [TileRule(c) if c.kind is ChoiceKind.TILE else ListRule(c) for c in sketch.choices]
        self.columns = [columns for columns, _ in sketch.decision_slices]
        self.owner = np.repeat(np.arange(len(self.rules)), [rule.width for rule in self.rules])
        self.free_choices = np.array(
            [i for i, rule in enumerate(self.rules) if rule.has_alternatives], dtype=np.int64
        )

    def sample(self, rng: np.random.Generator, count: int) -> Rows:
        parts = [rule.sample(rng, count) for rule in self.rules]
        return np.hstack([np.empty((count, 0), dtype=np.int32), *parts])

    def mutate(self, rng: np.random.Generator, rows: Rows) -> Rows:
        """Change one choice of every row; without free choices, rows stay the same."""
        changed = rows.copy()
        if not self.free_choices.size:
            return changed
        values = rng.choice(self.free_choices, size=len(rows))
        for index in self.free_choices:
            lines, columns = np.flatnonzero(values == index), self.columns[index]
            changed[lines, columns] = self.rules[index].mutate(rng, rows[lines, columns])
        return changed

    def cross(self, rng: np.random.Generator, mothers: Rows, fathers: Rows) -> Rows:
        from_father = rng.random((len(mothers), len(self.rules))) < 0.5
        return np.where(from_father[:, self.owner], fathers, mothers)

    def well_formed(self, rows: Rows) -> NDArray[np.bool_]:
        good = np.ones(len(rows), dtype=np.bool_)
        for rule, columns in zip(self.rules, self.columns, strict=True):
            good &= rule.well_formed(rows[:, columns])
        return good


class DecisionSpace(Space):
    """A Space of the given sketches. Subclasses define `valid` and `defaults`."""

    def __init__(self, sketches: Sequence[Sketch], descriptors: Sequence[float], machine: Machine) -> None:
        self.sketches = tuple(sketches)
        self._descriptors = tuple(descriptors)
        self.machine = machine
        self._rules = {sketch.key: SketchRules(sketch) for sketch in self.sketches}

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        ordinals = rng.permutation((np.arange(count) + rng.integers(len(self.sketches))) % len(self.sketches))
        names = [self.sketches[ordinal].key for ordinal in ordinals]
        return self._make_candidates_by_sketch(names, lambda rules, lines: rules.sample(rng, len(lines)))

    def mutate_all(self, rng: np.random.Generator, parents: Sequence[Candidate]) -> list[Candidate]:
        names = [parent.sketch for parent in parents]
        return self._make_candidates_by_sketch(
            names, lambda rules, lines: rules.mutate(rng, decision_rows(rules.sketch, parents, lines))
        )

    def cross_all(
        self, rng: np.random.Generator, mothers: Sequence[Candidate], fathers: Sequence[Candidate]
    ) -> list[Candidate]:
        partners = [f if f.sketch == m.sketch else m for m, f in zip(mothers, fathers, strict=True)]
        return self._make_candidates_by_sketch(
            [mother.sketch for mother in mothers],
            lambda rules, lines: rules.cross(
                rng, decision_rows(rules.sketch, mothers, lines), decision_rows(rules.sketch, partners, lines)
            ),
        )

    def features(self, candidates: Sequence[Candidate]) -> Matrix:
        return self.features_in_view(DECISIONS.name, candidates)

    def features_in_view(self, view: str, candidates: Sequence[Candidate]) -> Matrix:
        matrix: Matrix = resolve("features", view)().extract(self.by_key, self._descriptors, candidates)
        return matrix

    def well_formed(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return whether each candidate names a sketch of this space and satisfies its choices."""
        answer = [False] * len(candidates)
        for name, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
            if rules := self._rules.get(name):
                fitting = [
                    index
                    for index in lines
                    if len(candidates[index].decisions) == rules.sketch.decision_count
                ]
                good = rules.well_formed(decision_rows(rules.sketch, candidates, fitting))
                for index, obeys in zip(fitting, good, strict=True):
                    answer[index] = bool(obeys)
        return answer

    def _make_candidates_by_sketch(
        self, names: Sequence[str], make: Callable[[SketchRules, list[int]], Rows]
    ) -> list[Candidate]:
        candidates: list[Candidate | None] = [None] * len(names)
        places = places_by_sketch(names)
        for sketch in self.sketches:
            if lines := places.get(sketch.key):
                rows = make(self._rules[sketch.key], lines).tolist()
                for index, decisions in zip(lines, rows, strict=True):
                    candidates[index] = Candidate(sketch.key, tuple(decisions))
        return [candidate for candidate in candidates if candidate is not None]
