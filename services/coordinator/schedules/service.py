"""Finds the best known schedules, and packs a job's exported logs."""

from db.repositories.jobs import Jobs
from db.repositories.schedules import Schedules
from mallorn.core.errors import Conflict
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from services.coordinator.paging import ListOut
from services.coordinator.parts import Parts
from services.coordinator.schedules.schemas import ScheduleOut


def best_schedules(
    parts: Parts, owner: str, workload: str | None, target: str | None
) -> ListOut[ScheduleOut]:
    """The fastest verified schedule a workload, target and context; times compare in one context only."""
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        found = Schedules(session).best_each(owner, workload=workload, target=target_key)
        return ListOut(items=[ScheduleOut.of(schedule) for schedule in found])


def export_uri(parts: Parts, owner: str, job_id: str) -> str:
    """Where a job's exported logs lie. Raises Conflict while there are none."""
    with parts.database.session() as session:
        job = Jobs(session).get(job_id, owner)
    if job.export_uri is None:
        if JobState(job.state).final:
            raise Conflict(
                f"job {job_id} is {job.state} and left no schedules", hint=f"mallorn show {job_id}"
            )
        raise Conflict(
            f"job {job_id} has no schedules yet, it is {job.state}", hint=f"mallorn watch {job_id}"
        )
    return job.export_uri
