"""Measure how well cost models rank a round's results, to split or merge task families."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.errors import PluginFailed
from mallorn.core.values.decision_log import RoundStats
from mallorn.core.values.trial import Trial
from mallorn.costmodels.base import CostModel, Vector
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.repositories.sketches import Sketches
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.feature_lookup import FeatureLookup
from mallorn.workers.round.propose import warn
from mallorn.workers.round.round_context import RoundContext
from mallorn.workers.round.select_cost_model import model_of, reads_current_view

FEWEST: Final = 4  # valid candidates that a rank needs
MOST_OTHERS: Final = 3  # models of other families per round, to bound its time
REVISING: Final = frozenset({"dynamic"})  # groupings that need ranks of other families
Batch = Sequence[tuple[Trial, int]]  # trial and measuring context; only times of one compare


def evaluate_ranking(runtime: Runtime, context: RoundContext) -> RoundStats:
    """Return how well cost models ranked the round's candidates. If a model fails, store a
    warning for the job and return an empty result."""
    try:
        with convert_plugin_errors(("cost_model", context.options.cost_model)):
            return _compute_round_stats(
                FeatureLookup(runtime.database, runtime.compiler, runtime.lower), context
            )
    except PluginFailed as error:
        warn(runtime, context.row.job_id, error, "families are judged without it")
        return RoundStats()


def _compute_round_stats(lookup: FeatureLookup, context: RoundContext) -> RoundStats:
    """Return which share of candidate pairs the round's own model ranked in the right
    order, and which share models of the job's other families rank. `rank_own` uses the
    predictions stored with the candidates; it is None if too few can be compared."""
    with lookup.database.session() as session:
        batch = Trials(session).of_round(context.row.id)
        models = _models_of_other_families(session, context) if context.options.families in REVISING else {}
        sketches = Sketches(session).by_key({trial.candidate.sketch for trial, _ in batch})
    rank_others: dict[str, float] = {}
    if len(batch) >= FEWEST:
        work, candidates = context.work(sketches), [trial.candidate for trial, _ in batch]
        for family, model in models.items():
            rows, is_known = lookup.look_up_features(model.view, work, candidates)
            usable = [row for row, has_features in zip(batch, is_known, strict=True) if has_features]
            share = _correct_pair_share(usable, model.predict(rows[is_known]).mean)
            if share is not None:
                rank_others[family] = share
    with_prediction = [row for row in batch if row[0].predicted is not None]
    predicted = np.array([trial.predicted for trial, _ in with_prediction], dtype=np.float32)
    rank_own = _correct_pair_share(with_prediction, predicted)
    return RoundStats(own_accuracy=rank_own, other_accuracies=rank_others)


def _models_of_other_families(session: Session, context: RoundContext) -> dict[str, CostModel]:
    """Return at most MOST_OTHERS other families' cost models, others in later rounds."""
    tasks = Tasks(session).list(context.row.job_id)
    own_family = next((task.family for task in tasks if task.id == context.row.task_id), "")
    families = sorted({task.family for task in tasks} - {own_family})
    first = context.row.index * MOST_OTHERS % max(1, len(families))
    name, target_id = context.options.cost_model, context.row.target_id
    rows = {
        family: CostModels(session).latest(family, target_id, name)
        for family in (families[first:] + families[:first])[:MOST_OTHERS]
    }
    return {
        family: model_of(row)
        for family, row in rows.items()
        if row is not None and reads_current_view(name, str(row.metrics.get("view", "")))
    }


def _correct_pair_share(batch: Batch, scores: Vector) -> float | None:
    """Return the share of pairs ranked as their times are; None if too few or equal."""
    if len(batch) < FEWEST:
        return None
    labels = -np.log(np.array([trial.latency_us for trial, _ in batch], dtype=np.float64)).astype(np.float32)
    groups = np.array([number for _, number in batch], dtype=np.int64)
    share = pairwise_accuracy(scores, labels, groups)
    return None if np.isnan(share) else round(share, 4)
