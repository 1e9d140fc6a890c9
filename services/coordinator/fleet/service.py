"""Reads what the fleet did."""

from typing import Final

from db.repositories.activity import Activity
from db.repositories.stage_runs import StageRuns
from db.session import read_clock
from services.coordinator.fleet.schemas import ActivityOut, StageOut, StintOut
from services.coordinator.web.parts import Parts

MAX_ROUNDS: Final = 5000
MAX_STAGES: Final = 5000


def activity(parts: Parts, owner: str, minutes: float) -> ActivityOut:
    """What ran within the last minutes; that of other owners without its names."""
    with parts.database.session() as session:
        now_sec = read_clock(session)
        found = Activity(session).stints(owner, minutes * 60, MAX_ROUNDS)
        stages = StageRuns(session).stints(owner, minutes * 60, MAX_STAGES)
        jobs = Activity(session).queued()
    return ActivityOut(
        now=now_sec,
        since=now_sec - minutes * 60,
        stints=[StintOut.of(stint) for stint in found],
        stages=[StageOut.of(stage) for stage in stages],
        complete=len({stint.round_id for stint in found}) < MAX_ROUNDS and len(stages) < MAX_STAGES,
        queued_rounds=jobs.pop("rounds"),
        jobs=jobs,
    )
