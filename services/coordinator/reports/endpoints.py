"""The route of reports."""

import time
from typing import Any, Final

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from mallorn.report.page import page
from mallorn.report.policy import SERVED
from services.coordinator.reports import service
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/jobs", tags=["jobs"])
HTML: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A page that needs nothing else.",
        "content": {"text/html": {"schema": {"type": "string"}}},
    }
}


# Not response_class=HTMLResponse: the description would then have failures in HTML, too.
@router.get("/{job_id}/report", response_class=Response, responses=HTML)
def job_report(parts: PartsDep, owner: OwnerDep, job_id: str) -> HTMLResponse:
    """Show all there is to know of a job as one HTML page, the same that `mallorn report` writes."""
    told = page(service.story_of(parts, owner, job_id), time.time())
    return HTMLResponse(told, headers={"Content-Security-Policy": SERVED})
