"""The origin of a candidate: `searcher:means`, as in `ga:mutation`."""

from dataclasses import replace
from typing import Final

from workers.search.base import Proposal

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
