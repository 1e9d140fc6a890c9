"""Schedules: verified bests, and how they are found again."""

from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, Row, Select, exists, func, select, tuple_
from sqlalchemy.orm import aliased, defer

from db.measurement_codec import pack_text, pack_times, unpack_text, unpack_times
from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository, owned
from db.repositories.measuring_contexts import is_inside_model
from db.tables import Context, Job, Measurement, Schedule, TargetRow, Workload
from mallorn.core.errors import NotFound
from mallorn.core.values.dataset import VerifiedSchedule, WholeSchedule

# With the workload's key and name, the target, whether its times are upper bounds, and how they were taken.
Named = tuple[Schedule, str, str, str, bool, dict[str, object] | None]


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


CONTEXT = func.coalesce(Schedule.context_id, 0)
# By what a person looks for, then the fastest first, and of equal ones the newest.
PLACE = Workload.name, TargetRow.text, CONTEXT, Schedule.workload_id, Schedule.latency_us, -Schedule.id


class Schedules(Repository):
    def promote(self, new: NewSchedule) -> Schedule:
        """Store a verified best; promoting the same measurement again keeps the first."""
        values = asdict(new) | {"trace": pack_text(new.trace), "run_us": pack_times(new.run_us)}
        once = self.insert(Schedule).values(values).on_conflict_do_nothing(index_elements=["measurement_id"])
        self.session.execute(once)
        stored = select(Schedule).where(Schedule.measurement_id == new.measurement_id)
        return self.session.scalars(stored).one()

    def page(
        self,
        owner: str | None,
        *,
        workload: str | None = None,
        target: str | None = None,
        beaten: bool = False,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[VerifiedSchedule]:
        """The fastest of each workload, target and context, by name; `workload` and `target` are keys.

        An owner sees what their own jobs promoted. With `beaten` slower ones are there too, fastest first.
        """
        query = _named(owner).options(defer(Schedule.trace), defer(Schedule.run_us))
        query = query.order_by(*PLACE).limit(check_limit(limit) + 1)
        keys = (Workload.key, workload), (TargetRow.key, target)
        query = query.where(*(column == value for column, value in keys if value is not None))
        if not beaten:
            query = query.where(_fastest(owner))
        if cursor is not None:
            position = decode_cursor(cursor, str, str, int, int, float, int)
            query = query.where(tuple_(*PLACE) > tuple_(*position))
        return page(self.session.execute(query).all(), limit, _place).of(_verified)

    def get(self, schedule_id: int, owner: str | None) -> WholeSchedule:
        """One schedule that a job of the owner promoted. Raises NotFound."""
        row = self.session.execute(_named(owner).where(Schedule.id == schedule_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id}", hint="mallorn schedules")
        stored: Schedule = row[0]
        told = _verified(row).model_dump() | {"run_us": unpack_times(stored.run_us)}
        return WholeSchedule(trace=unpack_text(stored.trace), **told)


def _named(owner: str | None) -> Select[*Named]:
    """Schedules that a job of the owner promoted, with the names of what they belong to."""
    query = (
        select(Schedule, Workload.key, Workload.name, TargetRow.text, Measurement.bound_us.is_not(None))
        .add_columns(Context.evaluator)
        .outerjoin(Context, Context.id == Schedule.context_id)
        .join(Workload, Workload.id == Schedule.workload_id)
        .join(TargetRow, TargetRow.id == Schedule.target_id)
        .join(Measurement, Measurement.id == Schedule.measurement_id)
    )
    return query if owner is None else query.where(_promoted_by(Schedule, owner))


def _promoted_by(schedule: type[Schedule], owner: str) -> ColumnElement[bool]:
    return schedule.job_id.in_(select(Job.id).where(owned(owner)))


def _fastest(owner: str | None) -> ColumnElement[bool]:
    """Whether no other of the same workload, target and context is faster, or as fast and newer."""
    other = aliased(Schedule)
    same = other.workload_id == Schedule.workload_id, other.target_id == Schedule.target_id
    context = func.coalesce(other.context_id, 0) == CONTEXT
    ahead = tuple_(other.latency_us, -other.id) < tuple_(Schedule.latency_us, -Schedule.id)
    seen = () if owner is None else (_promoted_by(other, owner),)
    return ~exists().where(*same, context, ahead, *seen)


def _place(row: Row[*Named]) -> tuple[str | float, ...]:
    found, _, name, target, *_ = row
    return name, target, found.context_id or 0, found.workload_id, found.latency_us, -found.id


def _verified(row: Row[*Named]) -> VerifiedSchedule:
    found, workload, name, target, is_bound, evaluator = row
    names = {"workload": workload, "workload_name": name, "target": target}
    inside_model = evaluator is not None and is_inside_model(evaluator)
    return VerifiedSchedule.from_row(found, **names, is_bound=is_bound, inside_model=inside_model)
