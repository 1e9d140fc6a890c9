"""The Space seam: the candidates of a task, and what searchers may do with them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.candidate import Candidate, Choice, ChoiceKind, Sketch
from mallorn.core.values.machine import Machine
from searchers.loop_nest import Nest

__all__ = ["Candidate", "Choice", "ChoiceKind", "Matrix", "Sketch", "Space"]

Matrix = NDArray[np.float32]


class Space(ABC):
    """All candidates of one workload on one target.

    Contract
    - Everything is deterministic: the same generator state gives the same answer in any process.
    - `sample`, `mutate` and `cross` work on decision vectors alone and are cheap (microseconds); what they
      return is well-formed (tile factors multiply up, indices in range) but may still be invalid.
    - `valid` is the exact answer and may be slow (milliseconds): ask it for finalists only.
    - `features` has one row a candidate and the same columns for every workload of a family.
    """

    sketches: Sequence[Sketch]  # in a fixed order
    machine: Machine  # what the candidates run on: measured, or assumed of its target

    @property
    def nests(self) -> Sequence[Nest]:
        """What the blocks of the program compute, as far as it is known."""
        return ()

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        """Draw candidates at random, spread over the sketches."""

    def mutate(self, rng: np.random.Generator, parent: Candidate) -> Candidate:
        """Change one choice of the parent."""
        return self.mutate_all(rng, [parent])[0]

    def cross(self, rng: np.random.Generator, mother: Candidate, father: Candidate) -> Candidate:
        """Take each choice from one of two parents of the same sketch; of different ones, copy the mother."""
        return self.cross_all(rng, [mother], [father])[0]

    @abstractmethod
    def mutate_all(self, rng: np.random.Generator, parents: Sequence[Candidate]) -> list[Candidate]:
        """`mutate` for many parents."""

    @abstractmethod
    def cross_all(
        self, rng: np.random.Generator, mothers: Sequence[Candidate], fathers: Sequence[Candidate]
    ) -> list[Candidate]:
        """`cross` for many couples."""

    @abstractmethod
    def defaults(self) -> list[Candidate]:
        """Sane candidates without any search, best guess first; at least one is valid."""

    @abstractmethod
    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        """True for each candidate that can be rebuilt into a program."""

    @abstractmethod
    def features(self, candidates: Sequence[Candidate]) -> Matrix:
        """One row for each candidate in the view `decisions`, which searchers and most cost models read."""

    @abstractmethod
    def viewed(self, view: str, candidates: Sequence[Candidate]) -> Matrix:
        """The same in another view; NaN for what cannot be lowered.

        Raises InvalidRequest for a view that needs a compiler where there is none.
        """

    @cached_property
    def by_key(self) -> dict[str, Sketch]:
        return {sketch.key: sketch for sketch in self.sketches}
