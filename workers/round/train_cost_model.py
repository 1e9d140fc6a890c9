"""Refit the cost model of a task family when its training data has grown enough."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from mallorn.core.check_plugin_classes import check_allowed_classes, convert_plugin_errors
from mallorn.core.cost_model_name import PRIVATE, CostModelName
from mallorn.core.errors import InvalidRequest, MissingPackage, PluginFailed, Unavailable
from mallorn.core.job_options import KeptOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.states import StageKind
from mallorn.core.values.trial import Trial
from mallorn.costmodels.base import CostModel, Groups, Vector
from mallorn.costmodels.labels import bounded_sample, is_informative, is_time_label, labels
from mallorn.costmodels.views import VIEWS
from mallorn.db.repositories.cost_models import CostModels, Head, NewCostModel
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.trials import Trials
from mallorn.db.repositories.workloads import Sketches, Workloads
from mallorn.db.tables import Job
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.round.feature_lookup import FeatureLookup, WorkloadOnTarget
from mallorn.workers.round.loaded_round import work_of
from mallorn.workers.round.propose import warn
from mallorn.workers.round.select_cost_model import (
    create_untrained_model,
    current_feature_view,
    reads_current_view,
)

GROWTH: Final = 0.2
FIRST_ROWS: Final = 8  # least number of timed rows; a model of fewer would only fit noise
MAX_ROWS: Final = 4000
# At most so many rows of a family are looked at; a refit chooses MAX_ROWS of them.
MOST_ROWS: Final = 16_384
MOST_NEW: Final = 256  # uncached candidates per workload that one refit lowers


@dataclass(frozen=True, slots=True)
class _Refit:
    family: str
    target_id: int
    name: str
    head: Head | None


@dataclass(frozen=True, slots=True)
class _Data:
    """Training rows, oldest first, and the workloads of their candidates."""

    rows: Sequence[Trial]
    owners: Groups  # workload id of each row
    labels: Vector
    groups: Groups
    works: Mapping[int, WorkloadOnTarget]
    op: str  # operator of most rows, whose base model is used
    total: int  # rows of the family, at most MOST_ROWS, from which these were sampled
    seen_upto: int


def train(runtime: Runtime, job_id: str, task_id: int) -> None:
    """Refit the cost model of a task's family (tasks that share measurements and a model)
    if its data has grown enough; on failure, store a warning for the job."""
    with runtime.database.session() as session:
        job = Jobs(session).get(job_id, None)
        options = KeptOptions.model_validate(job.options)
        name = options.cost_model
        family = Tasks(session).get(task_id).family
        head = CostModels(session).head(family, job.target_id, name)
        if head is not None and not reads_current_view(name, head.view):
            head = None
        seen_upto, rows = (head.seen_upto, min(head.rows, MOST_ROWS)) if head else (0, 0)
        trials = Trials(session, job)
        fresh = trials.count_new_family_rows(family, job.target_id, MOST_ROWS, after_id=seen_upto)
        total = rows if rows == MOST_ROWS else fresh  # old rows of a full family are not counted again
        if 0 < rows < MOST_ROWS:
            total = trials.count_new_family_rows(family, job.target_id, MOST_ROWS)
        # Tasks that join or leave the family add or remove old rows, so compare totals as well.
        if total < FIRST_ROWS or max(fresh, abs(total - rows)) < max(FIRST_ROWS, GROWTH * rows):
            return
        refit = _Refit(family, job.target_id, name, head)
    try:
        with convert_plugin_errors(("cost_model", name)):
            with runtime.database.session() as session:
                options.check_all_readable()
                check_allowed_classes(options, runtime.settings.plugins)
                data = _load_data(session, job, refit)
                model, base = create_untrained_model(session, options, data.op, job.target_id, job.machine)
            family_text = "one job or owner" if family.startswith(PRIVATE) else family
            with runtime.stage_run(StageKind.TRAIN, job_id, f"training {name} for {family_text}"):
                version = _fit(
                    refit, data, model, base, FeatureLookup(runtime.database, runtime.compiler, runtime.lower)
                )
    except (PluginFailed, MissingPackage, InvalidRequest, Unavailable) as error:
        warn(runtime, job_id, error, f"no new version of {name} proposes candidates")
        return
    if version is not None:
        with runtime.database.transaction() as session:
            CostModels(session).add(version)


def _fit(
    refit: _Refit, data: _Data, model: CostModel, base: CostModelName | None, lookup: FeatureLookup
) -> NewCostModel | None:
    """Fit and return the next version; None if too few rows have both time and features."""
    rows = np.zeros((len(data.rows), VIEWS[model.view].width), dtype=np.float32)
    has_features = np.zeros(len(data.rows), dtype=np.bool_)
    for workload_id, work in data.works.items():
        # Newest first, because the next candidates will resemble the latest ones.
        indices = np.flatnonzero(data.owners == workload_id)[::-1]
        candidates = [data.rows[index].candidate for index in indices]
        rows[indices], has_features[indices] = lookup.look_up_features(model.view, work, candidates, MOST_NEW)
    groups, label = data.groups[has_features], data.labels[has_features]
    if np.count_nonzero(is_time_label(label)) < FIRST_ROWS:
        return None
    model.fit(rows[has_features], label, groups, seed=data.total)
    metrics = {
        "training_rows": len(groups),
        "groups": len(np.unique(groups)),
        "view": current_feature_view(refit.name),
    }
    return NewCostModel(
        family=refit.family,
        target_id=refit.target_id,
        name=refit.name,
        seen_upto=data.seen_upto,
        rows=data.total,
        metrics=metrics | ({"base": str(base)} if base else {}),
        blob=model.save(),
        parent_id=refit.head.id if refit.head else None,
    )


def _load_data(session: Session, job: Job, refit: _Refit) -> _Data:
    """Sample the labels of the family's measurements; load only the sampled rows."""
    outlines, total = Trials(session, job).read_family_columns(refit.family, refit.target_id, MOST_ROWS)
    outcomes = [Outcome.read(word) for word in outlines["outcome"]]
    numbers: dict[tuple[int, int | None], int] = {}  # latencies compare within one of these
    keys = outlines.rows("workload_id", "context_id")
    groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    label = labels(outlines["latency_us"], groups, outcomes)
    useful = np.flatnonzero(is_informative(outcomes))
    sample = useful[bounded_sample(label[useful], MAX_ROWS, seed=total)]
    rows = Trials(session).by_ids([outlines["id"][index] for index in sample])
    owners = np.array(outlines["workload_id"], dtype=np.int64)[sample]
    workloads = Workloads(session).get_many(set(owners.tolist()))
    sketches = Sketches(session).by_key({row.candidate.sketch for row in rows})
    target = Targets(session).get(refit.target_id).text
    ops = {workload.id: workload.op for workload in workloads}
    most_common = Counter(ops[owner] for owner in owners.tolist()).most_common(1)
    return _Data(
        rows=rows,
        owners=owners,
        labels=label[sample],
        groups=groups[sample],
        works={row.id: work_of(row, refit.target_id, target, sketches) for row in workloads},
        op=most_common[0][0] if most_common else "",
        total=total,
        seen_upto=outlines["id"][-1],
    )
