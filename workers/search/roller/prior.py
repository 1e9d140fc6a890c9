"""What the constructor's model of time says of any candidates, before any of them was measured."""

from collections.abc import Sequence

import numpy as np

from costmodels.base import Column
from workers.search.features import decision_rows, places_by_sketch
from workers.search.roller.guesses import Constructor
from workers.search.space import Candidate, Space


def losses(space: Space, candidates: Sequence[Candidate]) -> Column:
    """The log of how much longer each probably takes than the best of them that there is a model of.

    Zero for those of sketches without a model.
    """
    constructor = Constructor(space.nests, space.machine)
    log_us = np.full(len(candidates), np.nan)
    for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
        sketch = space.by_key[key]
        us = constructor.time_us(sketch, decision_rows(sketch, candidates, lines))
        if us is not None:
            log_us[lines] = np.log(us)
    known = log_us[~np.isnan(log_us)]
    return np.asarray(np.nan_to_num(log_us - known.min(initial=np.inf), nan=0.0))


def modelled_us(space: Space, candidate: Candidate) -> float | None:
    """What one candidate should take; None where there is no model of its sketch, or the space lacks it."""
    sketch = space.by_key.get(candidate.sketch)
    if sketch is None:
        return None
    us = Constructor(space.nests, space.machine).time_us(sketch, decision_rows(sketch, [candidate], [0]))
    return None if us is None else float(us[0])
