"""Look-ups of schedules by operator, shape, type and target, and why a look-up misses."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import Final

from sqlalchemy import ColumnElement, func, or_, select

from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import (
    FieldDifference,
    NearestSchedule,
    ScheduleLookup,
    TaskLookup,
)
from mallorn.db.repositories.base import Repository, is_owned_by
from mallorn.db.repositories.measurement_filters import is_not_refuted
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import Tasks
from mallorn.db.repositories.workloads import KEPT
from mallorn.db.tables import Context, Job, Measurement, TargetRow, Task, Workload

MOST_WORKLOADS: Final = 5000  # of an operator that are compared, the newest first
NEAREST: Final = 3
RANKED: Final = 12  # workloads whose measurements are read
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScheduleQuery:
    """Fields of a look-up; one without a value fits all."""

    workload: str | None = None
    operator: str | None = None
    shapes: Sequence[Shape] = ()  # each must be the shape of an argument
    dtype: str | None = None
    target: str | None = None
    structure: str | None = None  # of a task's loops; graph passes change it
    name: str = ""
    tvm_version: str | None = None


class ScheduleLookups(Repository):
    """Finds schedules and, where there is none, the nearest measured workloads."""

    def find(self, owner: str | None, query: ScheduleQuery, limit: int) -> ScheduleLookup:
        """Return the owner's schedules that fit, or else the nearest workloads."""
        visible = self._visible(owner, query.operator) or self._visible(owner, None)
        fitting = [workload.id for workload in visible if not _compare_workloads(query, workload)]
        target = None if query.target is None else parse_target(query.target).key
        page = Schedules(self.session).page(owner, workload_ids=fitting, target=target, limit=limit)
        if page.items:
            return ScheduleLookup(found=list(page.items))
        return ScheduleLookup(nearest=self._nearest(query, visible))

    def of_job(self, job: Job) -> list[TaskLookup]:
        """Return for each task whether its workload was measured on the job's target."""
        target = Targets(self.session).get(job.target_id).text
        lookups = []
        for task, workload in Tasks(self.session).list_with_workloads(job.id):
            query = ScheduleQuery(
                workload=workload.key,
                operator=workload.op,
                shapes=shapes_of(workload),
                dtype="/".join(dtypes_of(workload)),
                target=target,
                structure=workload.structure,
                name=workload.name,
                tvm_version=workload.tvm_version,
            )
            nearest = self._nearest(query, self._visible(job.owner, workload.op))
            is_known = any(
                item.workload == workload.key
                and {difference.field for difference in item.differences} <= {"TVM version"}
                for item in nearest
            )
            lookup = TaskLookup(
                task=task.name,
                workload=workload.key,
                is_known=is_known,
                nearest=[] if is_known else nearest,
            )
            lookups.append(lookup)
        return lookups

    def _visible(self, owner: str | None, operator: str | None) -> Sequence[Workload]:
        """Return workloads of an operator that are shared or the owner's, newest first."""
        rows = select(Workload).order_by(Workload.id.desc()).limit(MOST_WORKLOADS)
        if operator is not None:
            rows = rows.where(Workload.op == operator)
        if owner is not None:
            own = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(is_owned_by(owner))
            rows = rows.where(or_(Workload.kept_upto != KEPT, Workload.id.in_(own)))
        return self.session.scalars(rows).all()

    def _nearest(self, query: ScheduleQuery, workloads: Sequence[Workload]) -> list[NearestSchedule]:
        workloads_by_distance = sorted(workloads, key=lambda workload: _distance(query, workload))
        items: list[NearestSchedule] = []
        for start in range(0, min(len(workloads_by_distance), 10 * RANKED), RANKED):
            for workload in workloads_by_distance[start : start + RANKED]:
                items += self.list_measurements(query, workload)
            if len(items) >= NEAREST:
                break
        items.sort(key=lambda item: len(item.differences))
        return items[:NEAREST]

    def list_measurements(self, query: ScheduleQuery, workload: Workload) -> list[NearestSchedule]:
        """Return a workload's best measurement on each target and with each TVM."""
        is_timed: tuple[ColumnElement[bool], ...] = (
            Measurement.workload_id == workload.id,
            Measurement.latency_us.is_not(None),
            is_not_refuted(),
        )
        times = (
            select(TargetRow.text, Context.tvm_version, func.min(Measurement.latency_us))
            .join(TargetRow, TargetRow.id == Measurement.target_id)
            .join(Context, Context.id == Measurement.context_id)
            .where(*is_timed)
            .group_by(TargetRow.text, Context.tvm_version)
            .order_by(TargetRow.text != (query.target or ""), Context.tvm_version.desc())
            .limit(NEAREST)
        )
        items = []
        for target, tvm_version, latency_us in self.session.execute(times):
            differences = _compare_workloads(query, workload)
            if query.target is not None and query.target != target:
                differences.append(FieldDifference(field="target", wanted=query.target, stored=target))
            if query.tvm_version is not None and query.tvm_version != tvm_version:
                differences.append(
                    FieldDifference(field="TVM version", wanted=query.tvm_version, stored=tvm_version)
                )
            item = NearestSchedule(
                workload=workload.key,
                workload_name=workload.name,
                operator=workload.op,
                dtypes=dtypes_of(workload),
                shapes=[list(shape) for shape in shapes_of(workload)],
                target=target,
                tvm_version=tvm_version,
                latency_us=latency_us,
                differences=differences,
            )
            items.append(item)
        return items


def shapes_of(workload: Workload) -> list[Shape]:
    """Return the shapes of the workload's tensors."""
    return [tuple(shape) for _, _, shape in workload.args.get("args", [])]


def dtypes_of(workload: Workload) -> list[str]:
    """Return the data types of the workload's tensors, each once, sorted."""
    return sorted({dtype for _, dtype, _ in workload.args.get("args", [])})


def _compare_workloads(query: ScheduleQuery, workload: Workload) -> list[FieldDifference]:
    """Return the fields of its program in which a workload differs from the wanted one."""
    if query.workload == workload.key:
        return []
    differences: list[FieldDifference] = []
    shapes, dtypes = shapes_of(workload), "/".join(dtypes_of(workload))

    def add(field: str, asked_text: str, stored_text: str) -> None:
        differences.append(FieldDifference(field=field, wanted=asked_text, stored=stored_text))

    if query.operator not in (None, workload.op):
        add("operator", str(query.operator), workload.op)
    if query.dtype is not None and not set(query.dtype.split("/")) <= set(dtypes.split("/")):
        add("dtype", query.dtype, dtypes)
    absent = [shape for shape in query.shapes if shape not in shapes]
    if absent:
        # The same sizes in another order of the axes are another layout, such as NHWC.
        sizes = {tuple(sorted(shape)) for shape in shapes}
        is_layout = all(tuple(sorted(shape)) in sizes for shape in absent)
        add(
            "layout" if is_layout else "shape",
            _shapes_text(query.shapes),
            _shapes_text(shapes),
        )
    if query.structure not in (None, workload.structure):
        add("graph pass", query.name, workload.name)
    if query.workload is not None and not differences:
        add("workload", query.workload, workload.key)
    return differences


def _shapes_text(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _distance(query: ScheduleQuery, workload: Workload) -> tuple[int, float]:
    """Return the number of different fields, and the doublings between the shapes."""
    doublings = 0.0
    for shape in query.shapes:
        pairs = [
            zip(shape, stored_shape, strict=True)
            for stored_shape in shapes_of(workload)
            if len(stored_shape) == len(shape)
        ]
        doublings += min(
            (sum(abs(log2(a / b)) for a, b in pair if a and b) for pair in pairs),
            default=inf,
        )
    return len(_compare_workloads(query, workload)), doublings
