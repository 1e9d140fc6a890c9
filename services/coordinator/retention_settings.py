"""Route that shows the retention settings of the service."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from mallorn.core.values.base import Value
from services.coordinator.web.app_context import PartsDep

router = APIRouter(prefix="/retention", tags=["jobs"])


class Retention(Value):
    """Days until something is deleted, 0: it is kept; and how many backups are.

    An admin changes the settings of the same names.
    """

    keep_jobs_days: Annotated[
        float, Field(description="After a job's end: the job, its log and its export.")
    ] = 0.0
    keep_events_days: Annotated[float, Field(description="After a job's end: its events and timeline.")] = 0.0
    keep_models_days: Annotated[float, Field(description="After its upload: a model without a job.")] = 0.0
    keep_audit_days: Annotated[float, Field(description="Entries of the audit log.")] = 0.0
    keep_backups: Annotated[int, Field(description="Backups of a SQLite database: how many are kept.")] = 0


@router.get("")
def show_retention(parts: PartsDep) -> Retention:
    """Show after how many days what is deleted: the settings MALLORN_KEEP_* of the service."""
    return Retention.from_row(parts.settings)
