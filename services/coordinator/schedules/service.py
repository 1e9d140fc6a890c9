"""Finds the best known schedules, and packs a job's exported logs."""

from db.codec import unpack_times
from db.repositories.jobs import Jobs
from db.repositories.schedules import Schedules, full_trace_of
from mallorn.core.errors import Conflict
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from services.coordinator.schedules.schemas import ScheduleOut, WholeScheduleOut
from services.coordinator.web.paging import ListOut
from services.coordinator.web.parts import Parts


def best_schedules(
    parts: Parts, owner: str, workload: str | None, target: str | None, beaten: bool
) -> ListOut[ScheduleOut]:
    """The fastest verified schedule a workload, target and context; times compare in one context only."""
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        found = Schedules(session).best_each(owner, workload=workload, target=target_key, beaten=beaten)
        return ListOut(items=[ScheduleOut.of(schedule) for schedule in found])


def get_schedule(parts: Parts, owner: str, schedule_id: int) -> WholeScheduleOut:
    """Raises NotFound."""
    with parts.database.session() as session:
        found = Schedules(session).get(schedule_id, owner)
    trace = full_trace_of(found.schedule)
    times = list(unpack_times(found.schedule.run_us))
    return WholeScheduleOut.of(
        found, trace=trace, run_us=times, scripts=parts.store.scripts(found.workload, trace)
    )


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
