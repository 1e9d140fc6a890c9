"""Routes of schedules."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from services.coordinator.schedules import service
from services.coordinator.schedules.schemas import ScheduleOut, WholeScheduleOut
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.paging import ListOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(tags=["schedules"])
MEDIA_TYPE: Final = "application/zip"
# A column of 64 bits.
IdPath = Annotated[int, Path(ge=1, le=2**63 - 1, description="The schedule's id.")]
ZIP: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Files that stock TVM loads as `JSONDatabase(work_dir=...)`, with a manifest.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.get("/schedules")
def best_schedules(
    parts: PartsDep,
    owner: OwnerDep,
    workload: Annotated[str | None, Query(description="Only schedules of this workload key.")] = None,
    target: Annotated[str | None, Query(description="Only schedules for exactly this target.")] = None,
    beaten: Annotated[bool, Query(description="Also those that a faster one has replaced.")] = False,
) -> ListOut[ScheduleOut]:
    """List the best known schedule of each workload on each target."""
    return service.best_schedules(parts, owner, workload, target, beaten)


@router.get("/schedules/{schedule_id}")
def get_schedule(parts: PartsDep, owner: OwnerDep, schedule_id: IdPath) -> WholeScheduleOut:
    """Show one schedule: its trace, and the program before and after it."""
    return service.get_schedule(parts, owner, schedule_id)


@router.get("/jobs/{job_id}/schedules", response_class=StreamingResponse, responses=ZIP)
def job_schedules(parts: PartsDep, owner: OwnerDep, job_id: str) -> StreamingResponse:
    """Download the logs that a job exported, as a zip archive."""
    content = parts.store.zip_directory(service.export_uri(parts, owner, job_id))
    name = f'attachment; filename="mallorn-{job_id}.zip"'
    return StreamingResponse(content, media_type=MEDIA_TYPE, headers={"Content-Disposition": name})
