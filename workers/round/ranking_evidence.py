"""Measure how well a family's cost model ranked a round's results, to split families."""

from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.db.repositories.trials import Trials

FEWEST: Final = 4  # valid candidates that a rank needs


def compute_own_accuracy(session: Session, round_id: int) -> float | None:
    """Return the share of a round's candidate pairs that its cost model ranked in the right
    order, by the predictions stored with them; None if too few can be compared."""
    batch = [row for row in Trials(session).of_round(round_id) if row[0].predicted is not None]
    if len(batch) < FEWEST:
        return None
    predicted = np.array([trial.predicted for trial, _ in batch], dtype=np.float32)
    labels = -np.log(np.array([trial.latency_us for trial, _ in batch], dtype=np.float64)).astype(np.float32)
    # Only times of one context compare.
    groups = np.array([context_id for _, context_id in batch], dtype=np.int64)
    share = pairwise_accuracy(predicted, labels, groups)
    return None if np.isnan(share) else round(share, 4)
