"""Route that lists the decision log of a job."""

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query

from db.repositories.decision_log import DecisionLog
from db.repositories.jobs import Jobs
from db.repositories.tasks import Tasks
from mallorn.core.errors import NotFound
from mallorn.core.values.decision_log import RoundStatus
from services.coordinator.web.app_context import PartsDep
from services.coordinator.web.caller_dependencies import OwnerDep
from services.coordinator.web.paging import MAX_INT, CursorQuery, LimitQuery, PageOut

router = APIRouter(prefix="/jobs", tags=["jobs"])


class RoundOrder(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


TaskQuery = Annotated[
    int | None, Query(ge=0, le=MAX_INT, description="Only rounds of the task with this index.")
]
OrderQuery = Annotated[
    RoundOrder, Query(description="`newest` or `oldest` first; use the same for all pages.")
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
    """List a job's rounds: why each was planned, its forecast and its results."""
    with parts.database.session() as session:
        Jobs(session).get(job_id, owner)
        if task is not None and task not in {known.index for known in Tasks(session).list(job_id)}:
            raise NotFound(f"job {job_id} has no task {task}", hint=f"mallorn tasks {job_id}")
        oldest_first = order is RoundOrder.OLDEST
        page = DecisionLog(session).list(
            job_id, task_index=task, oldest_first=oldest_first, cursor=cursor, limit=limit
        )
    return PageOut(items=page.items, next_cursor=page.cursor)
