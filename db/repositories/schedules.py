"""Schedules: store verified best measurements, list them, and read the fastest."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import ColumnElement, Row, Select, exists, func, select, tuple_
from sqlalchemy.orm import aliased, defer

from mallorn.core.states import MeasurementKind
from mallorn.core.values.dataset import VerifiedSchedule, WholeSchedule
from mallorn.core.values.trial import Trial
from mallorn.db.measurement_codec import pack_text, pack_times, unpack_text, unpack_times
from mallorn.db.repositories.base import Page, Repository, equalities, is_owned_by, require_row
from mallorn.db.repositories.measurement_filters import is_not_refuted, is_shared
from mallorn.db.repositories.measuring_contexts import is_inside_model
from mallorn.db.repositories.trials import select_trials, trial_of
from mallorn.db.tables import Context, Job, Measurement, Schedule, SourceDataset, TargetRow, Workload

# A schedule, its workload's key and name, target, whether its time is a bound, evaluator.
Named = tuple[Schedule, str, str, str, bool, dict[str, object] | None]
CONTEXT = func.coalesce(Schedule.context_id, 0)
# By workload name, target and context, then fastest first, and newest first among equal times.
PLACE = Workload.name, TargetRow.text, CONTEXT, Schedule.workload_id, Schedule.latency_us, -Schedule.id
_AGAIN: Final = (MeasurementKind.FINISH, MeasurementKind.FOREIGN_FINISH)


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A candidate that passed the numeric check, with its repeated times and full trace."""

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


class Schedules(Repository):
    def promote(self, new: NewSchedule) -> Schedule:
        """Store a verified best measurement; repeating the call changes nothing."""
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
        workload_ids: Collection[int] | None = None,
        target: str | None = None,
        beaten: bool = False,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[VerifiedSchedule]:
        """Return the fastest schedule of each workload, target and context, sorted by name.

        `workload` and `target` are keys. An owner sees schedules that their own jobs
        promoted. `beaten` adds slower schedules, fastest first.
        """
        query = _select_named_schedules(owner).options(defer(Schedule.trace), defer(Schedule.run_us))
        query = query.order_by(*PLACE).limit(limit + 1)
        query = query.where(*equalities((Workload.key, TargetRow.key), (workload, target)))
        if workload_ids is not None:
            query = query.where(self.is_among(Schedule.workload_id, workload_ids))
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
            position = Page.decode_cursor(cursor, str, str, int, int, float, int)
            query = query.where(tuple_(*PLACE) > tuple_(*position))
        rows = Page.of(self.session.execute(query).all(), limit, _page_position)
        return Page([_verified(row) for row in rows.items], rows.cursor)

    def get(self, schedule_id: int, owner: str | None) -> WholeSchedule:
        """Return a schedule of an owner's job. Raises NotFound if there is none."""
        query = _select_named_schedules(owner).where(Schedule.id == schedule_id)
        result = self.session.execute(query).one_or_none()
        row = require_row(result, f"schedule {schedule_id}", "mallorn schedules")
        schedule: Schedule = row[0]
        fields = _verified(row).model_dump() | {"run_us": unpack_times(schedule.run_us)}
        return WholeSchedule(trace=unpack_text(schedule.trace), **fields)


def _select_named_schedules(owner: str | None) -> Select[*Named]:
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
    return schedule.job_id.in_(select(Job.id).where(is_owned_by(owner)))


def _page_position(row: Row[*Named]) -> tuple[str | float, ...]:
    schedule, _, name, target, *_ = row
    return name, target, schedule.context_id or 0, schedule.workload_id, schedule.latency_us, -schedule.id


def _verified(row: Row[*Named]) -> VerifiedSchedule:
    schedule, workload, name, target, is_bound, evaluator = row
    names = {"workload": workload, "workload_name": name, "target": target}
    inside_model = evaluator is not None and is_inside_model(evaluator)
    return VerifiedSchedule.from_row(schedule, **names, is_bound=is_bound, inside_model=inside_model)


@dataclass(frozen=True, slots=True)
class BestRecord:
    """A measurement, with fields that identify it in other datasets."""

    op: str
    workload_id: int
    name: str
    context_id: int
    dataset: str
    row: int
    created_at: float
    trial: Trial


class BestRecords(Repository):
    """Reads the best measurement of each workload and context, without private programs."""

    def has_row(self, dataset: str, row: int) -> bool:
        """Return whether row `row` of the dataset with key `dataset` is stored here."""
        source = self.session.scalars(select(SourceDataset).where(SourceDataset.key == dataset)).one_or_none()
        if source is None:
            return False
        own_row = Measurement.id == row, Measurement.source_id.is_(None)
        imported_row = Measurement.source_row == row, Measurement.source_id == source.id
        query = select(Measurement.id).where(*(own_row if source.own else imported_row)).limit(1)
        return self.session.scalar(query) is not None

    def of_target(self, target_id: int, own: str) -> Sequence[BestRecord]:
        """Return the best record of each workload and context on a target, by operator.

        `own` is this dataset's key. Repeated times of a finish come before trials, which
        may be short by chance. Times taken inside a run of the model are left out if the
        workload was also timed alone, because TVM would compare both.
        """
        place = func.row_number().over(
            partition_by=(Measurement.workload_id, Measurement.context_id),
            order_by=(Measurement.kind.not_in(_AGAIN), Measurement.latency_us, Measurement.id),
        )
        conditions = Measurement.target_id == target_id, Measurement.context_id.is_not(None)
        places = (
            select(Measurement.id, place.label("place"))
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(*conditions, is_not_refuted(None), is_shared())
            .subquery()
        )
        columns = {
            "op": Workload.op,
            "workload_id": Measurement.workload_id,
            "name": Workload.name,
            "context_id": Measurement.context_id,
            "dataset": func.coalesce(SourceDataset.key, own),
            "row": func.coalesce(Measurement.source_row, Measurement.id),
            "created_at": Measurement.created_at,
        }
        query = (
            select_trials(Measurement.run_us, *(column.label(name) for name, column in columns.items()))
            .join(places, places.c.id == Measurement.id)
            .join(Workload, Workload.id == Measurement.workload_id)
            .join(Context, Context.id == Measurement.context_id)
            .add_columns(Context.evaluator)
            .outerjoin(SourceDataset, SourceDataset.id == Measurement.source_id)
            .where(places.c.place == 1)
            .order_by(Workload.op, Workload.key, Measurement.latency_us, Context.key)
        )
        rows = self.session.execute(query).all()
        timed_outside = {row.workload_id for row in rows if not is_inside_model(row.evaluator)}
        return [
            BestRecord(**{name: row._mapping[name] for name in columns}, trial=trial_of(row))
            for row in rows
            if not is_inside_model(row.evaluator) or row.workload_id not in timed_outside
        ]
