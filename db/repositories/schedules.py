"""Schedules: store the verified best measurements, and list them."""

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

# A schedule, its workload's key and name, target, whether its time is a bound, evaluator.
Named = tuple[Schedule, str, str, str, bool, dict[str, object] | None]


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A measurement that passed the numeric check and was repeated; `trace` includes its decisions."""

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
# By workload name, target and context, then fastest first, and newest first among equal times.
PLACE = Workload.name, TargetRow.text, CONTEXT, Schedule.workload_id, Schedule.latency_us, -Schedule.id


class Schedules(Repository):
    def promote(self, new: NewSchedule) -> Schedule:
        """Store a verified best measurement; a second call for the same measurement changes nothing."""
        values = asdict(new) | {"trace": pack_text(new.trace), "run_us": pack_times(new.run_us)}
        row = self.insert(Schedule).values(values).on_conflict_do_nothing(index_elements=["measurement_id"])
        self.session.execute(row)
        query = select(Schedule).where(Schedule.measurement_id == new.measurement_id)
        return self.session.scalars(query).one()

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
        """Return a page of the fastest schedules per workload, target and context, by name.

        `workload` and `target` are keys. An owner sees schedules that their own jobs promoted.
        `beaten` adds slower schedules, fastest first.
        """
        query = _named(owner).options(defer(Schedule.trace), defer(Schedule.run_us))
        query = query.order_by(*PLACE).limit(check_limit(limit) + 1)
        keys = (Workload.key, workload), (TargetRow.key, target)
        query = query.where(*(column == value for column, value in keys if value is not None))
        if not beaten:
            # No other schedule of the same kind is faster, or as fast and newer.
            rival = aliased(Schedule)
            is_faster = tuple_(rival.latency_us, -rival.id) < tuple_(Schedule.latency_us, -Schedule.id)
            is_visible = () if owner is None else (_promoted_by(rival, owner),)
            has_rival = exists().where(
                rival.workload_id == Schedule.workload_id,
                rival.target_id == Schedule.target_id,
                func.coalesce(rival.context_id, 0) == CONTEXT,
                is_faster,
                *is_visible,
            )
            query = query.where(~has_rival)
        if cursor is not None:
            position = decode_cursor(cursor, str, str, int, int, float, int)
            query = query.where(tuple_(*PLACE) > tuple_(*position))
        return page(self.session.execute(query).all(), limit, _place).of(_verified)

    def get(self, schedule_id: int, owner: str | None) -> WholeSchedule:
        """Return a schedule that a job of the owner promoted. Raises NotFound if there is none."""
        row = self.session.execute(_named(owner).where(Schedule.id == schedule_id)).one_or_none()
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id}", hint="mallorn schedules")
        schedule: Schedule = row[0]
        fields = _verified(row).model_dump() | {"run_us": unpack_times(schedule.run_us)}
        return WholeSchedule(trace=unpack_text(schedule.trace), **fields)


def _named(owner: str | None) -> Select[*Named]:
    """Return the query for schedules that the owner's jobs promoted, with the names of related rows."""
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


def _place(row: Row[*Named]) -> tuple[str | float, ...]:
    schedule, _, name, target, *_ = row
    return name, target, schedule.context_id or 0, schedule.workload_id, schedule.latency_us, -schedule.id


def _verified(row: Row[*Named]) -> VerifiedSchedule:
    schedule, workload, name, target, is_bound, evaluator = row
    names = {"workload": workload, "workload_name": name, "target": target}
    inside_model = evaluator is not None and is_inside_model(evaluator)
    return VerifiedSchedule.from_row(schedule, **names, is_bound=is_bound, inside_model=inside_model)
