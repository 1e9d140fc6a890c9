"""Reads what the fleet did."""

from typing import Final

from db.repositories.activity import Activity
from db.session import read_clock
from services.coordinator.fleet.schemas import ActivityOut, StintOut
from services.coordinator.parts import Parts

MAX_ROUNDS: Final = 5000


def activity(parts: Parts, owner: str, minutes: float) -> ActivityOut:
    """Rounds that ran within the last minutes; those of other owners without their names."""
    with parts.database.session() as session:
        now_sec = read_clock(session)
        found = Activity(session).stints(owner, minutes * 60, MAX_ROUNDS)
        jobs = Activity(session).queued()
    return ActivityOut(
        now=now_sec,
        since=now_sec - minutes * 60,
        stints=[StintOut.of(stint) for stint in found],
        complete=len({stint.round_id for stint in found}) < MAX_ROUNDS,
        queued_rounds=jobs.pop("rounds"),
        jobs=jobs,
    )
