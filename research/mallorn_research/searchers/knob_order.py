"""The decisions of a sketch in the order in which partial schedules make them."""

from functools import lru_cache

import numpy as np

from mallorn.searchers.decision_features import group_choices
from mallorn.searchers.learning.knobs import Knobs, knobs_of
from mallorn.searchers.space import Sketch
from mallorn_research.costmodels import decision_prefixes


class KnobOrder:
    """The knobs (decisions) of a sketch, in the order of `decision_prefixes.STEP`."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch
        self.knobs: Knobs = knobs_of(sketch)
        # The feature column in the view `decisions` of each column of a decision vector.
        groups = group_choices(sketch)
        columns = np.zeros(sketch.decision_count, dtype=np.int64)
        for tiles, column in (
            (groups.spatial, decision_prefixes.spatial_column),
            (groups.reduction, decision_prefixes.reduction_column),
        ):
            for axis, tile in enumerate(reversed(tiles)):
                for level, index in enumerate(reversed(range(tile.start, tile.stop))):
                    columns[index] = column(axis, level)
        for position, (index, _) in enumerate(groups.listed):
            columns[index] = decision_prefixes.listed_column(position)
        for position, index in enumerate(groups.locations):
            columns[index] = decision_prefixes.location_column(position)
        steps = decision_prefixes.STEP[columns]
        mine = np.array([steps[knob.column] for knob in self.knobs.knobs], dtype=np.int64)
        self.order = np.argsort(mine, kind="stable").tolist()
        self._before = [int(mine[index]) - 1 for index in self.order] + [decision_prefixes.LAST]

    def __len__(self) -> int:
        return len(self.order)

    def last_decided_step(self, count: int) -> int:
        """Return the decision step up to which rows are decided if `count` knobs are set."""
        return self._before[count]


knob_order_of = lru_cache(maxsize=256)(KnobOrder)
