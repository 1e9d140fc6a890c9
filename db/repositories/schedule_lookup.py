"""Look-ups of schedules by operator, shape, type and target, and why a look-up misses."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Final

from sqlalchemy import func, or_, select

from mallorn.core.targets import Target
from mallorn.core.values.dataset import NearestSchedule, ScheduleLookup
from mallorn.db.repositories.base import Repository, is_owned_by
from mallorn.db.repositories.measurement_filters import is_shown_to
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.repositories.workloads import KEPT
from mallorn.db.tables import Context, Job, Measurement, TargetRow, Task, Workload

MOST_WORKLOADS: Final = 5000  # of an operator that are compared, the newest first
MOST_RANKED: Final = 100  # nearest workloads of which measurements are read
ENOUGH: Final = 12  # measurements among which the nearest are chosen
NEAREST: Final = 3


@dataclass(frozen=True, slots=True)
class ScheduleQuery:
    """Fields of a look-up; one without a value fits all."""

    workload: str | None = None
    operator: str | None = None
    shapes: Sequence[list[int]] = ()  # each must be the shape of an argument
    dtypes: Sequence[str] = ()  # each must be the type of an argument
    target: Target | None = None
    program: Workload | None = None  # the workload with that key, if it is stored


class ScheduleLookups(Repository):
    """Finds schedules and, where there is none, the nearest measured workloads."""

    def find(self, owner: str | None, query: ScheduleQuery, limit: int) -> ScheduleLookup:
        """Return the owner's schedules that fit, or else the nearest workloads."""
        visible = select(Workload).order_by(Workload.id.desc()).limit(MOST_WORKLOADS)
        if owner is not None:  # shared workloads, and those of the owner's jobs
            own = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(is_owned_by(owner))
            visible = visible.where(or_(Workload.kept_upto != KEPT, Workload.id.in_(own)))
        program = self.session.scalar(visible.where(Workload.key == query.workload))
        if program is not None:
            shapes, dtypes = shapes_of(program), dtypes_of(program)
            query = ScheduleQuery(program.key, program.op, shapes, dtypes, query.target, program)
        of_operator = self.session.scalars(visible.where(Workload.op == query.operator)).all()
        workloads = of_operator or self.session.scalars(visible).all()
        fitting = [workload.id for workload in workloads if not _compare_workloads(query, workload)]
        target_key = query.target.key if query.target else None
        page = Schedules(self.session).page(owner, workload_ids=fitting, target=target_key, limit=limit)
        if page.items:
            return ScheduleLookup(found=list(page.items), nearest=[])
        items: list[NearestSchedule] = []
        for workload in sorted(workloads, key=lambda row: _distance(query, row))[:MOST_RANKED]:
            items += self._nearest(owner, query, workload)
            if len(items) >= ENOUGH:
                break
        nearest = sorted(items, key=lambda item: len(item.differences))[:NEAREST]
        return ScheduleLookup(found=[], nearest=nearest)

    def _nearest(self, owner: str | None, query: ScheduleQuery, workload: Workload) -> list[NearestSchedule]:
        """Return a workload's best measurement on each target and with each TVM that the owner may
        read: that of the newest measuring context, since times of two contexts do not compare."""
        wanted_target = query.target.text if query.target else None
        wanted_version = query.program.tvm_version if query.program else None
        place = func.row_number().over(
            partition_by=(TargetRow.text, Context.tvm_version),
            order_by=(Context.id.desc(), Measurement.latency_us),
        )
        times = (
            select(TargetRow.text, Context.tvm_version, Measurement.latency_us, place.label("place"))
            .join(TargetRow, TargetRow.id == Measurement.target_id)
            .join(Context, Context.id == Measurement.context_id)
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(Measurement.workload_id == workload.id)
            .where(is_shown_to(owner))
            .subquery()
        )
        best = select(times.c.text, times.c.tvm_version, times.c.latency_us).where(times.c.place == 1)
        best = best.order_by(times.c.text != wanted_target, times.c.tvm_version.desc()).limit(NEAREST)
        differences = _compare_workloads(query, workload)
        return [
            NearestSchedule(
                workload=workload.key,
                workload_name=workload.name,
                target=target,
                tvm_version=version,
                latency_us=us,
                differences=differences
                | _differences(("target", wanted_target, target), ("TVM version", wanted_version, version)),
            )
            for target, version, us in self.session.execute(best)
        ]


def dtypes_of(workload: Workload) -> list[str]:
    """Return the data types of the workload's tensors, each once, sorted."""
    return sorted({dtype for _, dtype, _ in workload.args.get("args", [])})


def shapes_of(workload: Workload) -> list[list[int]]:
    return [list(shape) for _, _, shape in workload.args.get("args", [])]


def _compare_workloads(query: ScheduleQuery, workload: Workload) -> dict[str, str]:
    """Return the fields of its program in which a workload differs from the wanted one."""
    if query.workload == workload.key:
        return {}
    shapes, dtypes = shapes_of(workload), dtypes_of(workload)
    sizes = [sorted(shape) for shape in shapes]
    absent = [shape for shape in query.shapes if shape not in shapes]
    # The same sizes in another order of the axes are another layout, such as NHWC.
    shape_field = "layout" if all(sorted(shape) in sizes for shape in absent) else "shape"
    new_dtypes = not set(query.dtypes) <= set(dtypes)
    differences = _differences(
        ("operator", query.operator, workload.op),
        ("dtype", ", ".join(query.dtypes) if new_dtypes else None, ", ".join(dtypes)),
        (shape_field, _shapes_text(query.shapes) if absent else None, _shapes_text(shapes)),
    )
    if query.program is not None and query.program.structure != workload.structure:
        differences["graph pass"] = f"wanted {query.program.name}, stored {workload.name}"
    return differences or _differences(("workload", query.workload, workload.key))


def _differences(*fields: tuple[str, str | None, str]) -> dict[str, str]:
    """Describe the fields whose wanted value is not the stored one; None fits every value."""
    differing = [row for row in fields if row[1] not in (None, row[2])]
    return {field: f"wanted {value}, stored {stored_value}" for field, value, stored_value in differing}


def _shapes_text(shapes: Sequence[list[int]]) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _distance(query: ScheduleQuery, workload: Workload) -> tuple[int, float]:
    """Return the number of different fields, and how many times smaller or larger the
    nearest shapes of the workload are, as a sum of powers of two."""
    sizes = [prod(shape) for shape in shapes_of(workload)] or [0]
    doublings = (min(abs(log2((1 + prod(shape)) / (1 + size))) for size in sizes) for shape in query.shapes)
    return len(_compare_workloads(query, workload)), sum(doublings)
