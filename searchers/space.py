"""The interface `Space`: the candidates of a task, and the operations of searchers on them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.candidate import Candidate, Choice, ChoiceKind, Sketch
from mallorn.core.values.machine import Machine
from mallorn.searchers.loop_nest import Nest

__all__ = ["Candidate", "Choice", "ChoiceKind", "Matrix", "Sketch", "Space"]

Matrix = NDArray[np.float32]


class Space(ABC):
    """All candidates of one workload on one target.

    Contract
    - All methods are deterministic: equal generator states give equal results in any process.
    - `sample`, `mutate` and `cross` only use decision vectors and are fast (microseconds).
      Their results are well-formed (tile factors multiply to the extent, indices in range),
      but may be invalid.
    - `valid` is exact and may be slow (milliseconds): call it for finalists only.
    - `features` has one row per candidate and the same columns for every workload of a family.
    """

    sketches: Sequence[Sketch]  # in a fixed order
    machine: Machine  # on which candidates run: as probed, or as assumed for its target

    @property
    def nests(self) -> Sequence[Nest]:
        """The loop nests of the program's blocks; empty if unknown."""
        return ()

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        """Draw candidates at random, spread over the sketches."""

    def mutate(self, rng: np.random.Generator, parent: Candidate) -> Candidate:
        """Change one choice of the parent."""
        return self.mutate_all(rng, [parent])[0]

    def cross(self, rng: np.random.Generator, mother: Candidate, father: Candidate) -> Candidate:
        """Take each choice from one of two parents; copy the mother if their sketches differ."""
        return self.cross_all(rng, [mother], [father])[0]

    @abstractmethod
    def mutate_all(self, rng: np.random.Generator, parents: Sequence[Candidate]) -> list[Candidate]:
        """Change one choice of each parent."""

    @abstractmethod
    def cross_all(
        self, rng: np.random.Generator, mothers: Sequence[Candidate], fathers: Sequence[Candidate]
    ) -> list[Candidate]:
        """Cross many pairs of parents, see `cross`."""

    @abstractmethod
    def defaults(self) -> list[Candidate]:
        """Return good candidates without a search, best first; at least one is valid."""

    @abstractmethod
    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        """Return whether each candidate can be rebuilt into a program."""

    @abstractmethod
    def features(self, candidates: Sequence[Candidate]) -> Matrix:
        """Return a row of features per candidate, in the view (feature set) `decisions`."""

    @abstractmethod
    def features_in_view(self, view: str, candidates: Sequence[Candidate]) -> Matrix:
        """Return candidates' features in another view; NaN if they cannot be lowered.
        Raises InvalidRequest for a view that needs a compiler if there is none."""

    @cached_property
    def by_key(self) -> dict[str, Sketch]:
        return {sketch.key: sketch for sketch in self.sketches}
