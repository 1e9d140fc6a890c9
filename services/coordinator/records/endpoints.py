"""The route of measurements."""

from typing import Annotated

from fastapi import APIRouter, Query

from mallorn.core.outcomes import Outcome
from services.coordinator.records import service
from services.coordinator.records.schemas import RecordOut
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.paging import CursorQuery, LimitQuery, PageOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/records", tags=["dataset"])


@router.get("")
def list_records(
    parts: PartsDep,
    owner: OwnerDep,
    job: Annotated[str | None, Query(description="Only measurements of this job.")] = None,
    workload: Annotated[str | None, Query(description="Only measurements of this workload key.")] = None,
    target: Annotated[str | None, Query(description="Only measurements for this target.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only candidates that ended so.")] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 100,
) -> PageOut[RecordOut]:
    """List measurements of the owner's jobs, newest first."""
    return service.list_records(parts, owner, job, workload, target, outcome, cursor, limit)
