"""Routes that list and count measurements of the dataset."""

from typing import Annotated

from fastapi import APIRouter, Query

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import DatasetStats, Record
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Records
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.caller_dependencies import FewAtOnce, OwnerDep
from mallorn.services.coordinator.web.response_types import CursorQuery, LimitQuery, PageOut

router = APIRouter(tags=["dataset"])


@router.get("/records")
def list_records(
    parts: PartsDep,
    owner: OwnerDep,
    job: Annotated[str | None, Query(description="Only measurements of this job.")] = None,
    workload: Annotated[str | None, Query(description="Only measurements of this workload key.")] = None,
    target: Annotated[str | None, Query(description="Only measurements for this target.")] = None,
    outcome: Annotated[Outcome | None, Query(description="Only with this outcome.")] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 100,
) -> PageOut[Record]:
    """List measurements of the caller's jobs, newest first."""
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        if job is not None:  # otherwise a mistyped id would give an empty page
            Jobs(session).check_owner_had_job(job, owner)
        page = Records(session).page(
            owner,
            job_id=job,
            workload=workload,
            target=target_key,
            outcome=outcome,
            cursor=cursor,
            limit=limit,
        )
    return PageOut(items=page.items, next_cursor=page.cursor)


@router.get("/dataset/stats", dependencies=[FewAtOnce])
def get_dataset_stats(parts: PartsDep, owner: OwnerDep) -> DatasetStats:
    """Count the caller's measurements by target, operator, model, outcome and day."""
    with parts.patient.session() as session:
        return Statistics(session).of(owner)
