"""The view `decisions`: aligned tiles and lists, which searchers use too."""

from collections.abc import Sequence

from costmodels.views import DECISIONS
from workers.features.base import Extractor
from workers.search.features import describe
from workers.search.space import Matrix, Sketch
from workers.search.tiles import Rows


class AlignedDecisions(Extractor):
    """Descriptors, the sketch's structure, tiles, listed choices and derived columns."""

    view = DECISIONS

    def describe(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        return describe(sketch, descriptors, rows)
