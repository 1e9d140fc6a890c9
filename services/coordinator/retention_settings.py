"""Route that shows the retention settings of the service."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.services.coordinator.web.app_parts import PartsDep

router = APIRouter(prefix="/retention", tags=["jobs"])


class Retention(Value):
    """Days after which data are deleted (0: never), and numbers of what is kept.

    An admin changes these through the service's settings of the same names.
    """

    keep_jobs_days: Annotated[
        float, Field(description="After a job's end: the job with its log and exported files.")
    ] = 0.0
    keep_events_days: Annotated[float, Field(description="After a job's end: its events and timeline.")] = 0.0
    keep_models_days: Annotated[float, Field(description="After its upload: a model without a job.")] = 0.0
    keep_audit_days: Annotated[float, Field(description="Entries of the audit log.")] = 0.0
    keep_audit_entries: Annotated[
        int, Field(description="Maximum number of audit-log entries; 0: no limit.")
    ] = 0
    keep_backups: Annotated[int, Field(description="Number of SQLite database backups.")] = 0


@router.get("")
def show_retention(parts: PartsDep) -> Retention:
    """Show the retention settings (MALLORN_KEEP_*): when the service deletes which data."""
    return Retention.from_row(parts.settings)
