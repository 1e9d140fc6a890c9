"""How well models ordered a round's fresh batch: the evidence on which families are split and merged."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from costmodels.base import CostModel, Vector
from costmodels.metrics import pairwise_accuracy
from db.repositories.cost_models import CostModels
from db.repositories.sketches import Sketches
from db.repositories.tasks import Tasks
from db.repositories.trials import Trials
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.trial import Trial
from workers.round.feature_lookup import FeatureLookup, WorkloadOnTarget
from workers.round.round_context import RoundContext
from workers.round.select_cost_model import model_of, reads_todays_view

FEWEST: Final = 4  # valid candidates, below which the order says nothing
MOST_OTHERS: Final = 3  # models of other families, so that a round ends at once however many there are
REVISING: Final = frozenset({"dynamic"})  # groupings that ask about other families
Batch = Sequence[tuple[Trial, int]]  # with the measuring context, within which times compare


def rank(viewer: FeatureLookup, context: RoundContext) -> RoundStats:
    """For the stats of a measured round: the shares of pairs that its own and other models had in order.

    `rank_own` judges the frozen model by what it predicted; it is None where too little can be compared.
    """
    with viewer.database.session() as session:
        batch = Trials(session).of_round(context.row.id)
        asked = _others(session, context) if context.options.families in REVISING else {}
        sketches = Sketches(session).by_key({trial.candidate.sketch for trial, _ in batch})
    others = _shares(viewer, context.work(sketches), batch, asked) if len(batch) >= FEWEST else {}
    foreseen = [row for row in batch if row[0].predicted is not None]
    predicted = np.array([trial.predicted for trial, _ in foreseen], dtype=np.float32)
    return RoundStats(
        rank_own=_share(foreseen, predicted),
        rank_others={family: share for family, share in others.items() if share is not None},
    )


def _others(session: Session, context: RoundContext) -> dict[str, CostModel]:
    """Return models of the job's other families, by family."""
    name, target_id = context.options.cost_model, context.row.target_id
    asked = _asked(session, context)
    stored = {family: CostModels(session).latest(family, target_id, name) for family in asked}
    return {
        family: model_of(row)
        for family, row in stored.items()
        if row is not None and reads_todays_view(name, str(row.metrics.get("view", "")))
    }


def _shares(
    viewer: FeatureLookup, work: WorkloadOnTarget, batch: Batch, asked: Mapping[str, CostModel]
) -> dict[str, float | None]:
    """The share of pairs that each model has in order, of those whose view it reads."""
    candidates = [trial.candidate for trial, _ in batch]
    shares: dict[str, float | None] = {}
    for family, model in asked.items():
        rows, known = viewer.see(model.view, work, candidates)
        usable = [row for row, seen in zip(batch, known, strict=True) if seen]
        shares[family] = _share(usable, model.predict(rows[known]).mean)
    return shares


def _asked(session: Session, context: RoundContext) -> list[str]:
    """Return the job's other families, each in its turn where there are many."""
    tasks = Tasks(session).list(context.row.job_id)
    own = next((task.family for task in tasks if task.id == context.row.task_id), "")
    families = sorted({task.family for task in tasks} - {own})
    first = context.row.index * MOST_OTHERS % max(1, len(families))
    return (families[first:] + families[:first])[:MOST_OTHERS]


def _share(batch: Batch, scores: Vector) -> float | None:
    """The share of pairs in order; None for too few candidates, or where all took the same time."""
    if len(batch) < FEWEST:
        return None
    labels = -np.log(np.array([trial.latency_us for trial, _ in batch], dtype=np.float64)).astype(np.float32)
    groups = np.array([number for _, number in batch], dtype=np.int64)
    share = pairwise_accuracy(scores, labels, groups)
    return None if np.isnan(share) else round(share, 4)
