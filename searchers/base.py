"""The interface of searchers, which choose the candidates to measure next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from mallorn.core.values.trial import Proposal, Trial
from mallorn.costmodels.base import CostModel
from mallorn.searchers.space import Space

__all__ = ["Proposal", "Searcher", "Trial"]


class Searcher(ABC):
    """Proposes candidates (a sketch and its decisions) of one task.

    Contract
    - Proposals are a pure function of the arguments: a searcher keeps no state between
      calls, and gets all information from `history`, so that a round can be recomputed
      anywhere.
    - It returns at most `count` distinct, valid candidates that are not in `history`; fewer
      only if the space has no more.
    - Its only constructor argument is a Sampler, for searchers that choose from a pool.
    - Without a model (in the first round) it proposes the space's defaults first.
    - If `compiles` is True, it may call models that read lowered programs, for at most a
      few hundred candidates. Other searchers get a model of decisions instead; then the
      cost model chooses among their proposals.
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
        """Return the next candidates to measure, best first."""


# Origins that several searchers share; those of a single searcher are in its file.
DEFAULT: Final = "default"
RANDOM: Final = "random"
MEASURED: Final = "measured"
MUTATION: Final = "mutation"
CROSSOVER: Final = "crossover"
WALK: Final = "walk"
SYNTHESIS: Final = "synthesis"


def searcher_of(origin: str) -> str:
    """Return an origin's first part, its searcher's name: `ga` for `ga:mutation`."""
    return origin.rpartition(":")[0] or origin


def proposal_method_of(origin: str) -> str:
    """Return an origin's last part, how it was proposed: `mutation` for `ga:mutation`."""
    return origin.rpartition(":")[2]


def prefix_origin(proposal: Proposal, searcher: str) -> Proposal:
    """Return the proposal with the searcher's name before its origin, unless it has one."""
    return proposal if ":" in proposal.origin else replace(proposal, origin=f"{searcher}:{proposal.origin}")
