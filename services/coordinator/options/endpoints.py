"""The route of job options."""

from fastapi import APIRouter

from services.coordinator.options import service
from services.coordinator.options.schemas import OptionOut
from services.coordinator.web.paging import ListOut

router = APIRouter(prefix="/options", tags=["jobs"])


@router.get("")
def list_options() -> ListOut[OptionOut]:
    """List what a job's `options` may hold: every choice by its name, with the default."""
    return service.list_options()
