"""Reads the dataset."""

from dataclasses import asdict

from db.repositories.jobs import Jobs
from db.repositories.records import Records
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from services.coordinator.records.schemas import RecordOut
from services.coordinator.web.paging import PageOut
from services.coordinator.web.parts import Parts


def list_records(
    parts: Parts,
    owner: str,
    job_id: str | None,
    workload: str | None,
    target: str | None,
    outcome: Outcome | None,
    cursor: str | None,
    limit: int,
) -> PageOut[RecordOut]:
    """Raises NotFound for a job that is not there: an empty page would hide a mistyped id."""
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        if job_id is not None:
            Jobs(session).check_measured(job_id, owner)
        page = Records(session).page(
            owner,
            job_id=job_id,
            workload=workload,
            target=target_key,
            outcome=outcome,
            cursor=cursor,
            limit=limit,
        )
    items = [RecordOut.model_validate(asdict(record)) for record in page.items]
    return PageOut(items=items, next_cursor=page.cursor)
