"""A searcher screens by the view that its cost model reads."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import Matrix, Prediction
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.views import VIEWS
from mallorn.searchers.pooled_searcher import score
from mallorn.searchers.space import Candidate
from mallorn.searchers.synthetic_space import SyntheticSpace

SPACE = SyntheticSpace()


class LikesLongCode(RandomModel):
    """Reads generated code; counts whom it is asked about."""

    view = "executed"
    asked: ClassVar[list[int]] = []

    def predict(self, features: Matrix) -> Prediction:
        self.asked.append(len(features))
        return Prediction(np.nan_to_num(features[:, 0]), np.ones(len(features), dtype=np.float32))


class Compiled(SyntheticSpace):
    """Code as long as the innermost loops; what has an odd one cannot be lowered."""

    def features_in_view(self, view: str, candidates: Sequence[Candidate]) -> Matrix:
        rows = np.zeros((len(candidates), VIEWS[view].width), dtype=np.float32)
        rows[:, 0] = [each.decisions[3] * each.decisions[7] for each in candidates]
        rows[[each.decisions[7] % 2 == 1 for each in candidates]] = np.nan
        return rows


def test_what_cannot_be_lowered_comes_last() -> None:
    drawn = Compiled().sample(np.random.default_rng(0), 50)
    mean = score(Compiled(), LikesLongCode(), drawn).prediction.mean
    unknown = np.array([each.decisions[7] % 2 == 1 for each in drawn])
    assert unknown.any()
    assert mean[unknown].max() < mean[~unknown].min()


def test_a_view_that_takes_a_compiler_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="statements"):
        SPACE.features_in_view("statements", SPACE.sample(np.random.default_rng(0), 1))
