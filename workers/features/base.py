"""Extractor seam, a view of candidates that depends on sketch and decisions alone, and its first view."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from costmodels.views import DECISIONS, View
from searchers.decision_features import decision_rows, describe, places_by_sketch
from searchers.space import Candidate, Matrix, Sketch
from searchers.tile_factorizations import Rows


class Extractor(ABC):
    """Fills one view (`costmodels.views`) for candidates of one workload.

    Contract
    - A row is `view.width` wide, finite, and a pure function of sketch, descriptors and decisions: it does
      not depend on which other candidates are asked about, nor on their order.
    - Nothing is lowered and no compiler is asked, so that searchers can screen thousands.
    - Where the sketch is the same and decisions make another program, the rows differ.
    """

    view: ClassVar[View]

    @abstractmethod
    def describe(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        """One row of features for each decision vector of a sketch."""

    def extract(
        self, sketches: Mapping[str, Sketch], descriptors: Sequence[float], candidates: Sequence[Candidate]
    ) -> Matrix:
        """One row of features per candidate of any of the sketches."""
        matrix = np.zeros((len(candidates), self.view.width), dtype=np.float32)
        for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
            rows = decision_rows(sketches[key], candidates, lines)
            matrix[lines] = self.describe(sketches[key], descriptors, rows)
        return matrix


class AlignedDecisions(Extractor):
    """Descriptors, the sketch's structure, tiles, listed choices and derived columns."""

    view = DECISIONS

    def describe(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        return describe(sketch, descriptors, rows)
