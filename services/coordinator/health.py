"""Liveness and readiness routes for supervisors; they need no key and expose no data."""

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from mallorn.core import queues
from mallorn.core.errors import Conflict, Unavailable
from mallorn.core.version import API, VERSION
from mallorn.db.migrate import NewerTables, check_table_version
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep

OK: Final = "ok"
#: Longer than a start of control takes, and short enough to notice a dead control process.
LATE_SEC: Final = 60.0
router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """Response of a coordinator that runs."""

    status: Literal["ok"] = "ok"
    version: Annotated[str, Field(description="The coordinator's version.")] = VERSION
    api: Annotated[str, Field(description="Base path of the API.")] = API


class Ready(BaseModel):
    """All required parts of the service respond."""

    status: Literal["ready"] = "ready"
    database: Literal["ok"] = "ok"
    migrations: Annotated[
        str, Field(description="`ok`, or a note that a newer Mallorn migrated the database.")
    ] = OK
    broker: Literal["ok"] = "ok"
    control: Annotated[str, Field(description="`ok`, or which control loops are late.")] = OK
    events: Annotated[str, Field(description="`ok`, or why streams get no new events.")] = OK


@router.get("/healthz")
def get_liveness() -> Alive:
    """Return 200 as long as this process runs; nothing else is checked."""
    return Alive()


@router.get("/readyz")
async def get_readiness(parts: PartsDep) -> Ready:
    """Check database, migrations and broker; return 503 naming the first that fails."""
    # Anyone may call this often: concurrent requests share one check and block no threads.
    ready: Ready = await parts.pulse.share_concurrent_call(
        "ready", partial(run_in_threadpool, check_readiness, parts)
    )
    return ready


def check_readiness(parts: AppParts) -> Ready:
    parts.database.ping()
    migrations = OK
    try:
        check_table_version(parts.database)
    except NewerTables as error:
        migrations = error.message
    except Conflict as error:
        raise Unavailable(f"migrations: {error.message}", hint=error.hint) from error
    parts.waker.ping()
    # Reported in words, not as 503: on a 503 a proxy would take a merely slow service offline.
    with parts.database.session() as session:
        ages = LoopTicks(session).ages_sec(queues.TICKS)
    late = [
        f"{loop} has not run yet" if age_sec is None else f"{loop} last ran {age_sec:.0f} s ago"
        for loop, age_sec in ages.items()
        if age_sec is None or age_sec > max(LATE_SEC, 3 * queues.TICKS[loop])
    ]
    control = f"periodic tasks are late: {', '.join(late)}" if late else OK
    return Ready(migrations=migrations, control=control, events=parts.pulse.trouble or OK)
