"""Base class of extractors that need no compiler, and the extractor of the simplest view."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from costmodels.views import DECISIONS, View
from searchers.decision_features import decision_rows, describe, places_by_sketch
from searchers.space import Candidate, Matrix, Sketch
from searchers.tile_factorizations import Rows


class Extractor(ABC):
    """Computes the rows of one view (`costmodels.views`) for candidates of one workload.

    Contract
    - A row is `view.width` wide, finite, and a pure function of sketch, descriptors and
      decisions: other candidates in the call, and their order, do not change it.
    - Extractors neither lower nor compile, so searchers can screen thousands of candidates.
    - Candidates of one sketch whose decisions yield different programs have different rows.
    """

    view: ClassVar[View]

    @abstractmethod
    def describe(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        """Return one row of features for each decision vector of the sketch."""

    def extract(
        self, sketches: Mapping[str, Sketch], descriptors: Sequence[float], candidates: Sequence[Candidate]
    ) -> Matrix:
        """Return one row of features per candidate; their sketches may differ."""
        matrix = np.zeros((len(candidates), self.view.width), dtype=np.float32)
        for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
            rows = decision_rows(sketches[key], candidates, lines)
            matrix[lines] = self.describe(sketches[key], descriptors, rows)
        return matrix


class AlignedDecisions(Extractor):
    """Extracts the view of decisions: descriptors, tile sizes, choices, derived columns."""

    view = DECISIONS

    def describe(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        return describe(sketch, descriptors, rows)
