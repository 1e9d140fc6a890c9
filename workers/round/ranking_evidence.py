"""Measure how well models rank a round's new results; families are split and merged by that."""

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

FEWEST: Final = 4  # valid candidates that a rank needs
MOST_OTHERS: Final = 3  # models of other families per round, to bound its time
REVISING: Final = frozenset({"dynamic"})  # groupings that need ranks of other families
Batch = Sequence[tuple[Trial, int]]  # trial and measuring context; only times of one compare


def rank(viewer: FeatureLookup, context: RoundContext) -> RoundStats:
    """Return the shares of a round's pairs that its own and other models ranked correctly.

    `rank_own` uses the predictions stored with the candidates; None if too few are comparable.
    """
    with viewer.database.session() as session:
        batch = Trials(session).of_round(context.row.id)
        models = _others(session, context) if context.options.families in REVISING else {}
        sketches = Sketches(session).by_key({trial.candidate.sketch for trial, _ in batch})
    others = _shares(viewer, context.work(sketches), batch, models) if len(batch) >= FEWEST else {}
    with_prediction = [row for row in batch if row[0].predicted is not None]
    predicted = np.array([trial.predicted for trial, _ in with_prediction], dtype=np.float32)
    return RoundStats(
        rank_own=_share(with_prediction, predicted),
        rank_others={family: share for family, share in others.items() if share is not None},
    )


def _others(session: Session, context: RoundContext) -> dict[str, CostModel]:
    """Return models of the job's other families, by family."""
    name, target_id = context.options.cost_model, context.row.target_id
    families = _family_names(session, context)
    stored = {family: CostModels(session).latest(family, target_id, name) for family in families}
    return {
        family: model_of(row)
        for family, row in stored.items()
        if row is not None and reads_todays_view(name, str(row.metrics.get("view", "")))
    }


def _shares(
    viewer: FeatureLookup, work: WorkloadOnTarget, batch: Batch, models: Mapping[str, CostModel]
) -> dict[str, float | None]:
    """Return per family the share of pairs that its model ranks correctly."""
    candidates = [trial.candidate for trial, _ in batch]
    shares: dict[str, float | None] = {}
    for family, model in models.items():
        rows, is_known = viewer.see(model.view, work, candidates)
        usable = [row for row, has_features in zip(batch, is_known, strict=True) if has_features]
        shares[family] = _share(usable, model.predict(rows[is_known]).mean)
    return shares


def _family_names(session: Session, context: RoundContext) -> list[str]:
    """Return up to MOST_OTHERS of the job's other families, rotating from round to round."""
    tasks = Tasks(session).list(context.row.job_id)
    own = next((task.family for task in tasks if task.id == context.row.task_id), "")
    families = sorted({task.family for task in tasks} - {own})
    first = context.row.index * MOST_OTHERS % max(1, len(families))
    return (families[first:] + families[:first])[:MOST_OTHERS]


def _share(batch: Batch, scores: Vector) -> float | None:
    """Return the share of correctly ranked pairs; None for too few candidates or equal times."""
    if len(batch) < FEWEST:
        return None
    labels = -np.log(np.array([trial.latency_us for trial, _ in batch], dtype=np.float64)).astype(np.float32)
    groups = np.array([number for _, number in batch], dtype=np.int64)
    share = pairwise_accuracy(scores, labels, groups)
    return None if np.isnan(share) else round(share, 4)
