"""Proposes the best candidates of an analytic time model, and neighbours of the fastest."""

from dataclasses import dataclass
from typing import Final

from mallorn.searchers.base import MUTATION, Proposal
from mallorn.searchers.fill_round import Filter, propose_first_valid
from mallorn.searchers.pooled_searcher import FillingSearcher, Request, fastest
from mallorn.searchers.roller.rank_candidates import ranked
from mallorn.searchers.space import Candidate

RANKED: Final = "ranked"
BESIDE: Final = 0.25  # share of neighbours in a round, if there are measurements
_ELITE: Final = 8
_SPARE: Final = 2  # ranked candidates per proposal, because some are invalid


@dataclass(eq=False, kw_only=True)
class Roller(FillingSearcher):
    """Proposes candidates in order of their estimated time, without a cost model. Once
    there are measurements, a quarter of each round are mutants of the fastest."""

    random_share: float = 0.0

    def choose(self, request: Request, candidate_filter: Filter) -> list[Proposal]:
        space = request.space
        elite = fastest(request.history, _ELITE).candidates
        neighbours: list[Candidate] = []
        if elite:
            parents = [elite[index] for index in request.rng.integers(len(elite), size=request.count)]
            neighbours = space.mutate_all(request.rng, parents)
        mutants = propose_first_valid(candidate_filter, neighbours, round(BESIDE * request.count), MUTATION)
        tried_count = len(space.defaults()) + len(request.history)
        best = ranked(space.sketches, space.nests, space.machine, tried_count + _SPARE * request.count)
        return propose_first_valid(candidate_filter, best, request.count - len(mutants), RANKED) + mutants
