"""The decision log of a job as the API shows it."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query

from db.repositories.decisions import Decision, DecisionLog
from db.repositories.jobs import Jobs
from db.repositories.tasks import Tasks
from mallorn.core.errors import NotFound
from mallorn.core.states import RoundState
from mallorn.core.values.decision_log import RoundForecast, RoundStatus
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.paging import MAX_INT, CursorQuery, LimitQuery, PageOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/jobs", tags=["jobs"])


class RoundOrder(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


TaskQuery = Annotated[
    int | None, Query(ge=0, le=MAX_INT, description="Only rounds of the task with this index.")
]
OrderQuery = Annotated[
    RoundOrder, Query(description="`newest` or `oldest` first; keep it from page to page.")
]


@router.get("/{job_id}/rounds")
def list_rounds(
    parts: PartsDep,
    owner: OwnerDep,
    job_id: str,
    task: TaskQuery = None,
    order: OrderQuery = RoundOrder.NEWEST,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> PageOut[RoundStatus]:
    """List a job's rounds: why each was planned, what was expected of it and what it brought."""
    with parts.database.session() as session:
        Jobs(session).get(job_id, owner)
        if task is not None and task not in {known.index for known in Tasks(session).list(job_id)}:
            raise NotFound(f"job {job_id} has no task {task}", hint=f"mallorn tasks {job_id}")
        oldest_first = order is RoundOrder.OLDEST
        page = DecisionLog(session).list(
            job_id, task_index=task, oldest_first=oldest_first, cursor=cursor, limit=limit
        )
    return PageOut(items=[_round(decision) for decision in page.items], next_cursor=page.cursor)


def _round(decision: Decision) -> RoundStatus:
    """One pull of the bandit."""
    row = decision.round
    noted = row.reason
    return RoundStatus(
        id=row.id,
        index=row.index,
        task_index=decision.task_index,
        task_name=decision.task_name,
        weight=decision.weight,
        size=row.size,
        trials=decision.trials,
        failures=decision.failures,
        policy=noted.policy,
        score=noted.score,
        why=noted.why,
        forecast=noted.forecast,
        before_us=decision.before_us,
        found_us=decision.found_us,
        gain_us=decision.gain_us,
        in_interval=_in_interval(decision, noted.forecast),
        searcher=row.searcher,
        cost_model=None if decision.cost_model is None else str(decision.cost_model),
        proposal=_proposal(decision),
        cost_model_version=decision.cost_model_version,
        state=RoundState(row.state),
        attempt=decision.attempt,
        worker=row.worker,
        seconds=None
        if row.started_at is None or row.finished_at is None
        else row.finished_at - row.started_at,
        reason=noted,
        error=row.error,
        stats=row.stats,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _proposal(decision: Decision) -> str | None:
    if decision.cost_model is None or not decision.cost_model.is_base:
        return None
    which = "" if decision.round.seen_upto else "first round "
    return f"{which}proposed by {decision.cost_model}"


def _in_interval(decision: Decision, forecast: RoundForecast | None) -> bool | None:
    """A forecast is for the whole round: one that was cut short, or has mere bounds, does not judge it."""
    found_us, stats = decision.found_us, decision.round.stats
    if forecast is None or found_us is None or decision.round.state != RoundState.DONE:
        return None
    if stats is not None and stats.disturbance is not None and stats.disturbance.bounds:
        return None
    return forecast.low_us <= found_us <= forecast.high_us
