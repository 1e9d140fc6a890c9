"""Liveness and readiness routes for supervisors; they need no key and expose no data."""

from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from db.migrate import NewerTables, check
from db.repositories.control_loop_ticks import LoopTicks
from mallorn.core import queues
from mallorn.core.errors import Conflict, Unavailable
from mallorn.core.version import API, VERSION
from services.coordinator.web.app_context import AppContext, PartsDep

OK: Final = "ok"
#: Longer than a start of control takes, and short enough to notice a dead control process.
LATE_SEC: Final = 60.0
router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process lives."""

    status: Literal["ok"] = "ok"
    version: Annotated[str, Field(description="Of this coordinator.")] = VERSION
    api: Annotated[str, Field(description="Where its API begins.")] = API


class Ready(BaseModel):
    """Every part that is needed answers."""

    status: Literal["ready"] = "ready"
    database: Literal["ok"] = "ok"
    migrations: Annotated[
        str,
        Field(description="`ok`, or that a newer version is on its way, beside which this one serves on."),
    ] = OK
    broker: Literal["ok"] = "ok"
    control: Annotated[
        str,
        Field(description="`ok`, or which of control's loops had no turn lately; requests are served on."),
    ] = OK
    events: Annotated[
        str, Field(description="`ok`, or why those who follow jobs hear nothing new for the moment.")
    ] = OK


@router.get("/healthz")
def healthz() -> Alive:
    """Answer as long as the process lives."""
    return Alive()


@router.get("/readyz")
async def readyz(parts: PartsDep) -> Ready:
    """Answer 200 when database, migrations and broker are there, else 503 naming the part that is missing."""
    # Anyone may call this often: concurrent requests share one check and block no threads.
    ready: Ready = await parts.pulse.together("ready", partial(run_in_threadpool, _look, parts))
    return ready


def _look(parts: AppContext) -> Ready:
    parts.database.ping()
    migrations = OK
    try:
        check(parts.database)
    except NewerTables as error:
        migrations = error.message
    except Conflict as error:
        raise Unavailable(f"migrations: {error.message}", hint=error.hint) from error
    parts.waker.ping()
    # Reported in words, not as 503: on a 503 a proxy would take a merely slow service offline.
    with parts.database.session() as session:
        ages = LoopTicks(session).ages_sec(queues.TICKS)
    late = [
        f"{loop} had none yet" if age_sec is None else f"{loop} had its last one {age_sec:.0f} s ago"
        for loop, age_sec in ages.items()
        if age_sec is None or age_sec > max(LATE_SEC, 3 * queues.TICKS[loop])
    ]
    control = f"its loops want a turn: {', '.join(late)}" if late else OK
    return Ready(migrations=migrations, control=control, events=parts.pulse.trouble or OK)
