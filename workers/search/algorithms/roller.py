"""What the constructor of schedules holds for best, in its order, and what lies beside the fastest so far."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from costmodels.base import CostModel
from workers.search.base import Proposal, Searcher, Trial
from workers.search.fill import Filter, defaults_first, random_fill, take
from workers.search.measured import fastest
from workers.search.origins import MUTATION
from workers.search.roller.ranking import ranked
from workers.search.sampler import BatchSampler
from workers.search.space import Candidate, Space

RANKED: Final = "ranked"
BESIDE: Final = 0.25  # of a batch, once something was measured
_ELITE: Final = 8
_SPARE: Final = 2  # candidates of the ranking for each that is wanted: some are invalid


class Roller(Searcher):
    """Goes down the ranking of the constructor; a quarter of a batch are neighbours of the fastest."""

    def __init__(self, sampler: BatchSampler | None = None) -> None:
        del sampler  # all searchers get one; this one has no pool

    def propose(
        self,
        space: Space,
        history: Sequence[Trial],
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
    ) -> list[Proposal]:
        del model
        sieve = Filter(space, history)
        found = defaults_first(space, history, sieve, count)
        beside = take(
            sieve, _neighbours(space, history, count, rng), round(BESIDE * (count - len(found))), MUTATION
        )
        wanted = count - len(found) - len(beside)
        best = ranked(space.sketches, space.nests, space.machine, len(history) + _SPARE * count)
        found += take(sieve, best, wanted, RANKED) + beside
        return found + random_fill(space, sieve, count - len(found), rng)


def _neighbours(
    space: Space, history: Sequence[Trial], count: int, rng: np.random.Generator
) -> list[Candidate]:
    elite = fastest(history, _ELITE).candidates
    if not elite:
        return []
    return space.mutate_all(rng, [elite[at] for at in rng.integers(len(elite), size=count)])
