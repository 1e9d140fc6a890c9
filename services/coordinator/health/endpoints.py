"""Routes for whoever supervises this process; they need no key and tell no data."""

from fastapi import APIRouter

from services.coordinator.health import service
from services.coordinator.health.schemas import Alive, Ready
from services.coordinator.web.parts import PartsDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
def healthz() -> Alive:
    """Answer as long as the process lives."""
    return Alive()


@router.get("/readyz")
def readyz(parts: PartsDep) -> Ready:
    """Answer 200 when database, migrations and broker are there, else 503 naming the part that is missing."""
    return service.readiness(parts)
