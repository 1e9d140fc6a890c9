"""Schedules: verified bests, and how they are found again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import case, func, select, true

from db.codec import pack_text, pack_times, unpack_text
from db.repositories.base import Repository, owned
from db.tables import Job, Schedule, TargetRow, Task, Workload
from mallorn.core.errors import NotFound


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A measurement that passed the numeric check and was measured again; `trace` is its whole trace."""

    workload_id: int
    target_id: int
    context_id: int | None
    measurement_id: int
    job_id: str | None
    latency_us: float
    low_us: float
    high_us: float
    max_error: float
    trace: str
    run_us: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FoundSchedule:
    """A schedule with the names of what it belongs to."""

    schedule: Schedule
    workload: str  # Workload.key
    workload_name: str
    target: str  # canonical JSON


class Schedules(Repository):
    """Verified schedules of all jobs."""

    def promote(self, new: NewSchedule) -> Schedule:
        """Store a verified best; promoting the same measurement again keeps the first."""
        values = asdict(new) | {"trace": pack_text(new.trace), "run_us": pack_times(new.run_us)}
        once = self.insert(Schedule).values(values).on_conflict_do_nothing(index_elements=["measurement_id"])
        self.session.execute(once)
        stored = select(Schedule).where(Schedule.measurement_id == new.measurement_id)
        return self.session.scalars(stored).one()

    def best(self, workload_id: int, target_id: int, context_id: int | None = None) -> Schedule | None:
        """The fastest verified one for exactly this target, if there is any."""
        same = [Schedule.workload_id == workload_id, Schedule.target_id == target_id]
        if context_id is not None:
            same.append(Schedule.context_id == context_id)
        query = select(Schedule).where(*same).order_by(Schedule.latency_us, Schedule.id).limit(1)
        return self.session.scalars(query).one_or_none()

    def for_job(self, job_id: str) -> Sequence[tuple[Task, Schedule]]:
        """For each task that has one, the schedule the job would use: its own before one of another job."""
        foreign = case((Schedule.job_id == job_id, 0), else_=1)
        order = foreign, Schedule.latency_us, Schedule.id
        place = func.row_number().over(partition_by=Task.id, order_by=order).label("place")
        same = (Schedule.workload_id == Task.workload_id) & (Schedule.target_id == Job.target_id)
        ranked = (
            select(Task.id.label("task_id"), Schedule.id.label("schedule_id"), place)
            .join(Job, Job.id == Task.job_id)
            .join(Schedule, same)
            .where(Task.job_id == job_id)
            .subquery()
        )
        query = (
            select(Task, Schedule)
            .join(ranked, ranked.c.task_id == Task.id)
            .join(Schedule, ranked.c.schedule_id == Schedule.id)
            .where(ranked.c.place == 1)
            .order_by(Task.index)
        )
        return self.session.execute(query).all()

    def best_each(
        self,
        owner: str | None,
        *,
        workload: str | None = None,
        target: str | None = None,
        beaten: bool = False,
    ) -> Sequence[FoundSchedule]:
        """The fastest of each workload, target and context, by name; `workload` and `target` are keys.

        An owner sees what their own jobs promoted. With `beaten` slower ones are there too, fastest first.
        """
        keys = (Workload.key, workload), (TargetRow.key, target)
        wanted = [column == value for column, value in keys if value is not None]
        if owner is not None:
            wanted.append(Schedule.job_id.in_(select(Job.id).where(owned(owner))))
        compared = Schedule.workload_id, Schedule.target_id, Schedule.context_id
        fastest = Schedule.latency_us, Schedule.id.desc()
        place = func.row_number().over(partition_by=compared, order_by=fastest).label("place")
        names = Workload.key.label("key"), Workload.name.label("name"), TargetRow.text.label("text")
        ranked = (
            select(Schedule.id, place, *names)
            .join(Workload, Workload.id == Schedule.workload_id)
            .join(TargetRow, TargetRow.id == Schedule.target_id)
            .where(*wanted)
            .subquery()
        )
        query = (
            select(Schedule, ranked.c.key, ranked.c.name, ranked.c.text)
            .join(ranked, ranked.c.id == Schedule.id)
            .where(true() if beaten else ranked.c.place == 1)
            .order_by(ranked.c.name, ranked.c.text, Schedule.context_id, ranked.c.place)
        )
        return [FoundSchedule(*row) for row in self.session.execute(query)]

    def get(self, schedule_id: int, owner: str | None) -> FoundSchedule:
        """One schedule that a job of the owner promoted. Raises NotFound."""
        query = (
            select(Schedule, Workload.key, Workload.name, TargetRow.text)
            .join(Workload, Workload.id == Schedule.workload_id)
            .join(TargetRow, TargetRow.id == Schedule.target_id)
            .where(Schedule.id == schedule_id)
        )
        if owner is not None:
            query = query.join(Job, Job.id == Schedule.job_id).where(owned(owner))
        row = self.session.execute(query).one_or_none()
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id}", hint="mallorn schedules")
        return FoundSchedule(*row)


def full_trace_of(schedule: Schedule) -> str:
    """The whole trace's JSON, from which the program follows without its space."""
    return unpack_text(schedule.trace)
