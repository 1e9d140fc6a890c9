"""Rows of one sketch that are decided knob by knob, in the order of `costmodels.prefixes`."""

from functools import lru_cache

import numpy as np

from costmodels.prefixes import LAST, STEP, listed_column, place_column, reduction_column, spatial_column
from workers.search.features import layout
from workers.search.policy.knobs import Knobs, knobs_of
from workers.search.space import Sketch


class Ordered:
    """The knobs of a sketch in the order in which prefixes are decided."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.knobs: Knobs = knobs_of(sketch)
        steps = _steps(sketch)
        mine = np.array([steps[knob.column] for knob in self.knobs.knobs], dtype=np.int64)
        self.order = np.argsort(mine, kind="stable").tolist()
        self._before = [int(mine[at]) - 1 for at in self.order] + [LAST]

    def __len__(self) -> int:
        return len(self.order)

    def step(self, decided: int) -> int:
        """The step up to which rows are known once that many knobs are set."""
        return self._before[decided]


def _steps(sketch: Sketch) -> list[int]:
    """For each column of a decision vector the step at which cost models see it decided."""
    where = layout(sketch)
    columns = np.zeros(sketch.width, dtype=np.int64)
    for tiles, column in ((where.spatial, spatial_column), (where.reduction, reduction_column)):
        for axis, tile in enumerate(reversed(tiles)):
            for level, at in enumerate(reversed(range(tile.start, tile.stop))):
                columns[at] = column(axis, level)
    for place, (at, _) in enumerate(where.listed):
        columns[at] = listed_column(place)
    for place, at in enumerate(where.locations):
        columns[at] = place_column(place)
    steps: list[int] = STEP[columns].tolist()
    return steps


@lru_cache(maxsize=256)
def ordered(sketch: Sketch) -> Ordered:
    """The ordered knobs of a sketch, cached."""
    return Ordered(sketch)
