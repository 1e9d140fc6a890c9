"""Base class of feature extractors that need no compiler, and the extractor of decisions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from mallorn.costmodels.views import DECISIONS, View
from mallorn.searchers.decision_features import compute_sketch_features, decision_rows, places_by_sketch
from mallorn.searchers.space import Candidate, Matrix, Sketch
from mallorn.searchers.tile_factorizations import Rows


class Extractor(ABC):
    """Computes a set of features (a view, see `mallorn.costmodels.views`) of candidates.

    - A row is `view.width` wide, finite, and a pure function of sketch, descriptors and
      decisions: other candidates in the call, and their order, do not change it.
    - Extractors neither lower nor compile, so searchers can screen thousands of candidates.
    - If two candidates of a sketch yield different programs, their rows are different.
    """

    view: ClassVar[View]

    @abstractmethod
    def extract_rows(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        """Return a row of features for each of the decision vectors `rows` of a sketch."""

    def extract(
        self, sketches: Mapping[str, Sketch], descriptors: Sequence[float], candidates: Sequence[Candidate]
    ) -> Matrix:
        """Return one row of features per candidate. Their sketches may be different."""
        matrix = np.zeros((len(candidates), self.view.width), dtype=np.float32)
        for key, lines in places_by_sketch([candidate.sketch for candidate in candidates]).items():
            rows = decision_rows(sketches[key], candidates, lines)
            matrix[lines] = self.extract_rows(sketches[key], descriptors, rows)
        return matrix


class AlignedDecisions(Extractor):
    """Extracts a candidate's decisions: tile sizes, choices and values derived from them,
    after the workload's descriptors (its operations and loop extents)."""

    view = DECISIONS

    def extract_rows(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        return compute_sketch_features(sketch, descriptors, rows)
