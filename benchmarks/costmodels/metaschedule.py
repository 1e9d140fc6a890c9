"""MetaSchedule's own cost model on the stored statements: the bar for ours.

TVM's, untouched: the class `XGBModel` (`tvm.s_tir.meta_schedule.cost_model`) with its default settings; its
`update` (a label is the least time of a task over the candidate's; a failure takes 1e10 s); its `_train` (the
statements of a candidate packed, squared error of their summed score weighted by the label, trees of depth 10
until the training error has not fallen for 50 of them, 10,000 at most); its `predict`, with random answers
below 100 rows; the 164 numbers of a statement, told by its `PerStoreFeature` when the rows were frozen.

Ours: the features come out of the store instead of the extractor; all tasks but the last are put into the
model's data as `update` does, and the last goes through `update`, so that it is trained once and on all of
them; a program has at most twelve statements; what is more than 55 times slower than its task's best counts
as failed, as our labels end there; the seed is TVM's 43 plus ours; it has one thread, as all others; and a
score, which is a share of the best speed, becomes a label by its logarithm, without touching the order.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup, XGBConfig, XGBModel

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import FAILED_LABEL, CostModel, Matrix, Prediction, Vector
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.views import STATEMENTS, check_rows, check_width

FAILED_SEC: Final = 1e10  # as `update` has it for what did not run
SLOWEST: Final = float(np.exp(FAILED_LABEL))


class MetaSchedule(CostModel):
    """`XGBModel` behind our seam. It has no spread and is not stored: it is there to be compared with."""

    view: ClassVar[str] = STATEMENTS.name

    def __init__(self) -> None:
        self._model = _untrained(0)

    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        self._model = _untrained(seed)
        candidates, tasks = _candidates(features), list(iterate_group_rows(groups))
        for number, lines in enumerate(tasks[:-1]):
            _put(self._model, f"task {number}", [candidates[at] for at in lines], labels[lines])
        for lines in tasks[-1:]:
            results = [
                SimpleNamespace(run_secs=[sec] if sec < FAILED_SEC else []) for sec in _sec(labels[lines])
            ]
            self._model.update(_CONTEXT, [candidates[at] for at in lines], results)

    def predict(self, features: Matrix) -> Prediction:
        if not len(features):
            return Prediction(np.empty(0, dtype=np.float32), np.empty(0, dtype=np.float32))
        shares = self._model.predict(_CONTEXT, _candidates(features))
        return Prediction(as_labels(shares), np.zeros(len(shares), dtype=np.float32))

    def save(self) -> bytes:
        raise _not_stored()

    @classmethod
    def load(cls, blob: bytes) -> "MetaSchedule":
        del blob
        raise _not_stored()


class _Candidate:
    """A candidate that is known by its statements, as the extractor's answer."""

    def __init__(self, statements: Matrix) -> None:
        self._statements = statements

    def numpy(self) -> Matrix:
        return self._statements


class _Store:
    """Stands for the extractor: what it would find has been stored."""

    def extract_from(self, context: Any, candidates: Sequence[_Candidate]) -> Sequence[_Candidate]:
        del context
        return candidates


_CONTEXT: Final = SimpleNamespace(mod=tvm.IRModule())  # only its hash is asked for, to name a task


def _untrained(seed: int) -> Any:
    # The class that TVM's decorator wraps: it is the whole model, without the way through C++.
    model = XGBModel._cls(config=XGBConfig(seed=XGBConfig().seed + seed, nthread=1))
    model.extractor = _Store()
    return model


def _put(model: Any, name: str, candidates: Sequence[_Candidate], labels: Vector) -> None:
    """As the fourth step of `update`, of a task that it has not met."""
    found = [candidate.numpy() for candidate in candidates]
    model.data[name] = FeatureGroup(name, found, _sec(labels).astype(np.float32))
    model.data_size += len(found)


def _sec(labels: Vector) -> NDArray[np.float64]:
    """Times whose shares of the best are those of the labels."""
    return np.where(labels > FAILED_LABEL, np.exp(-labels.astype(np.float64)), FAILED_SEC)


def _candidates(features: Matrix) -> list[_Candidate]:
    """A program of which nothing is known has one statement of zeros: `PackSum` takes none for the end."""
    tables = STATEMENTS.tables(np.ascontiguousarray(features))
    counts = np.maximum(1, (tables[:, :, 0] > 0).sum(axis=1))
    return [_Candidate(table[:count, 1:]) for table, count in zip(tables, counts, strict=True)]


def as_labels(shares: NDArray[np.float64]) -> Vector:
    """Their logarithms down to where labels end, and from there on a line: nothing changes places."""
    logs = np.log(np.maximum(shares, SLOWEST))
    return np.where(shares > SLOWEST, logs, FAILED_LABEL + shares - SLOWEST).astype(np.float32)


def _not_stored() -> InvalidRequest:
    return InvalidRequest(
        "MetaSchedule's model is there to be compared with, and is not stored",
        hint="take the cost model statements",
    )
