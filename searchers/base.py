"""The Searcher seam: which candidates to measure next, and the origin that each proposal names."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from costmodels.base import CostModel
from mallorn.core.values.trial import Trial
from searchers.space import Candidate, Space

__all__ = ["Proposal", "Searcher", "Trial"]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to measure, the model's prediction, and its origin."""

    candidate: Candidate
    predicted: float | None
    origin: str


class Searcher(ABC):
    """Proposes candidates of one task.

    Contract
    - A proposal is a pure function of the arguments: a searcher keeps nothing between calls. What it wants to
      learn it learns from `history`, so a round can be recomputed anywhere; one that would rather go on from
      what its last round learned is a `searchers.stateful.StatefulSearcher`.
    - It returns at most `count` distinct, valid candidates and none that `history` holds already; fewer only
      when the space has no more.
    - Its one argument is the BatchSampler, for searchers that choose from a pool.
    - Without a model (the first round of a family) it still proposes, the space's defaults first.
    - Where `compiles`, it asks models of lowered views itself, about no more than a few hundred candidates;
      others are given the draft model in their place, and the model chooses among what they propose.
    """

    compiles: ClassVar[bool] = False

    @abstractmethod
    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        """The next candidates to measure, best first."""


# Means that several searchers share; a searcher's own are in its file.
DEFAULT: Final = "default"
RANDOM: Final = "random"
MEASURED: Final = "measured"
MUTATION: Final = "mutation"
CROSSOVER: Final = "crossover"
WALK: Final = "walk"
SYNTHESIS: Final = "synthesis"


def searcher_of(origin: str) -> str:
    """`ga` of `ga:mutation`."""
    return origin.rpartition(":")[0] or origin


def means_of(origin: str) -> str:
    """`mutation` of `ga:mutation`, and of `mutation` alone."""
    return origin.rpartition(":")[2]


def named(proposal: Proposal, searcher: str) -> Proposal:
    """The proposal with its searcher's name before its origin, unless it has one."""
    return proposal if ":" in proposal.origin else replace(proposal, origin=f"{searcher}:{proposal.origin}")
