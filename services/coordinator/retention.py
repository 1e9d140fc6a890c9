"""What is kept for how long."""

from fastapi import APIRouter

from mallorn.core.values.retention import Retention
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/retention", tags=["jobs"])


@router.get("")
def show_retention(parts: PartsDep) -> Retention:
    """Show after how many days what is deleted: the settings MALLORN_KEEP_* of the service."""
    settings = parts.settings
    return Retention(**{name: getattr(settings, name) for name in Retention.model_fields})
