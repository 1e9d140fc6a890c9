"""How well models ordered a round's fresh batch: the evidence on which families are split and merged."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from sqlalchemy.orm import Session

from costmodels.base import CostModel, Matrix, Vector
from costmodels.metrics import pairwise_accuracy
from db.repositories.batches import Batches, Timed
from db.repositories.cost_models import CostModels
from db.repositories.sketches import Sketches
from db.repositories.tasks import Tasks
from db.session import Database
from mallorn.core.names import resolve
from workers.round_context import RoundContext
from workers.search.features import describe_all
from workers.search.space import Candidate
from workers.stored import sketch_of

FEWEST: Final = 4  # valid candidates, below which the order says nothing
MOST_OTHERS: Final = 3  # models of other families, so that a round ends at once however many there are
REVISING: Final = frozenset({"dynamic"})  # groupings that ask about other families


def rank(database: Database, context: RoundContext) -> dict[str, Any]:
    """For the stats of a measured round: the shares of pairs that its own and other models had in order.

    `rank_own` judges the frozen model by what it predicted; it is None where too little can be compared.
    """
    with database.session() as session:
        batch = Batches(session).timed(context.row.id)
        others = _others(session, context, batch) if context.options.families in REVISING else {}
    foreseen = [row for row in batch if row.predicted is not None]
    return {
        "rank_own": _share(foreseen, np.array([row.predicted for row in foreseen], dtype=np.float32)),
        "rank_others": {family: share for family, share in others.items() if share is not None},
    }


def _others(session: Session, context: RoundContext, batch: Sequence[Timed]) -> dict[str, float | None]:
    if len(batch) < FEWEST:
        return {}
    features = _features(session, context, batch)
    shares: dict[str, float | None] = {}
    for family in _asked(session, context):
        stored = CostModels(session).latest(family, context.row.target_id, context.options.cost_model)
        if stored is not None:
            shares[family] = _share(batch, _load(stored.name, stored.blob).predict(features).mean)
    return shares


def _asked(session: Session, context: RoundContext) -> list[str]:
    """The job's other families, each in its turn where there are many."""
    tasks = Tasks(session).list(context.row.job_id)
    own = next(task.family for task in tasks if task.id == context.row.task_id)
    families = sorted({task.family for task in tasks} - {own})
    first = context.row.index * MOST_OTHERS % max(1, len(families))
    return (families[first:] + families[:first])[:MOST_OTHERS]


@lru_cache(maxsize=8)  # a model takes 20 ms to load and is asked about many rounds before its next version
def _load(name: str, blob: bytes) -> CostModel:
    model: CostModel = resolve("cost_model", name).load(blob)
    return model


def _features(session: Session, context: RoundContext, batch: Sequence[Timed]) -> Matrix:
    sketches = {row.key: sketch_of(row) for row in Sketches(session).get_many({row.sketch for row in batch})}
    candidates = [Candidate(row.sketch, row.decisions) for row in batch]
    return describe_all(sketches, context.descriptors, candidates)


def _share(batch: Sequence[Timed], scores: Vector) -> float | None:
    """The share of pairs in order; None for too few candidates, or where all took the same time."""
    if len(batch) < FEWEST:
        return None
    labels = -np.log(np.array([row.latency_us for row in batch], dtype=np.float64)).astype(np.float32)
    groups = np.array([row.context_id for row in batch], dtype=np.int64)
    share = pairwise_accuracy(scores, labels, groups)
    return None if np.isnan(share) else round(share, 4)
