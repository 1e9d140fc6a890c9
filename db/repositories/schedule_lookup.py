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
class WantedSchedule:
    """What a look-up asks for; a field without a value fits all."""

    workload: str | None = None
    operator: str | None = None
    shapes: Sequence[Shape] = ()  # each must be the shape of an argument
    dtype: str | None = None
    target: str | None = None
    structure: str | None = None  # the loops of a job's task, which depend on the graph passes
    name: str = ""
    tvm_version: str | None = None


class ScheduleLookups(Repository):
    """Finds schedules and, where there is none, the nearest measured workloads."""

    def find(self, owner: str | None, wanted: WantedSchedule, limit: int) -> ScheduleLookup:
        """Return the owner's schedules that fit or, if there is none, the nearest workloads."""
        visible = self._visible(owner, wanted.operator) or self._visible(owner, None)
        fitting = [workload.id for workload in visible if not _compare_workloads(wanted, workload)]
        target = None if wanted.target is None else parse_target(wanted.target).key
        page = Schedules(self.session).page(owner, workload_ids=fitting, target=target, limit=limit)
        if page.items:
            return ScheduleLookup(found=list(page.items))
        return ScheduleLookup(nearest=self._nearest(wanted, visible))

    def of_job(self, job: Job) -> list[TaskLookup]:
        """Return for each task whether its workload was measured on the job's target."""
        target = Targets(self.session).get(job.target_id).text
        lookups = []
        for task, workload in Tasks(self.session).list_with_workloads(job.id):
            wanted = WantedSchedule(
                workload=workload.key,
                operator=workload.op,
                shapes=shapes_of(workload),
                dtype="/".join(dtypes_of(workload)),
                target=target,
                structure=workload.structure,
                name=workload.name,
                tvm_version=workload.tvm_version,
            )
            nearest = self._nearest(wanted, self._visible(job.owner, workload.op))
            is_known = any(
                item.workload == workload.key and item.target == target and not _other_fields(item)
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
        query = select(Workload).order_by(Workload.id.desc()).limit(MOST_WORKLOADS)
        if operator is not None:
            query = query.where(Workload.op == operator)
        if owner is not None:
            own = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(is_owned_by(owner))
            query = query.where(or_(Workload.kept_upto != KEPT, Workload.id.in_(own)))
        return self.session.scalars(query).all()

    def _nearest(self, wanted: WantedSchedule, workloads: Sequence[Workload]) -> list[NearestSchedule]:
        ranked = sorted(workloads, key=lambda workload: _distance(wanted, workload))
        items: list[NearestSchedule] = []
        for start in range(0, min(len(ranked), 10 * RANKED), RANKED):
            for workload in ranked[start : start + RANKED]:
                items += self._measured(wanted, workload)
            if len(items) >= NEAREST:
                break
        items.sort(key=lambda item: len(item.differences))  # stable: the nearest workload first
        return items[:NEAREST]

    def _measured(self, wanted: WantedSchedule, workload: Workload) -> list[NearestSchedule]:
        """Return a workload's best measurement on each target and with each TVM."""
        is_timed: tuple[ColumnElement[bool], ...] = (
            Measurement.workload_id == workload.id,
            Measurement.latency_us.is_not(None),
            is_not_refuted(),
        )
        query = (
            select(TargetRow.text, Context.tvm_version, func.min(Measurement.latency_us))
            .join(TargetRow, TargetRow.id == Measurement.target_id)
            .join(Context, Context.id == Measurement.context_id)
            .where(*is_timed)
            .group_by(TargetRow.text, Context.tvm_version)
            .order_by(TargetRow.text != (wanted.target or ""), Context.tvm_version.desc())
            .limit(NEAREST)
        )
        items = []
        for target, tvm_version, latency_us in self.session.execute(query):
            differences = _compare_workloads(wanted, workload)
            if wanted.target is not None and wanted.target != target:
                differences.append(FieldDifference(field="target", wanted=wanted.target, stored=target))
            if wanted.tvm_version is not None and wanted.tvm_version != tvm_version:
                differences.append(
                    FieldDifference(field="TVM version", wanted=wanted.tvm_version, stored=tvm_version)
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


def _other_fields(item: NearestSchedule) -> bool:
    return any(difference.field != "TVM version" for difference in item.differences)


def shapes_of(workload: Workload) -> list[Shape]:
    """Return the shapes of the workload's tensors."""
    return [tuple(shape) for _, _, shape in workload.args.get("args", [])]


def dtypes_of(workload: Workload) -> list[str]:
    """Return the data types of the workload's tensors, each once, sorted."""
    return sorted({dtype for _, dtype, _ in workload.args.get("args", [])})


def _compare_workloads(wanted: WantedSchedule, workload: Workload) -> list[FieldDifference]:
    """Return the fields of its program in which a workload differs from the wanted one."""
    if wanted.workload == workload.key:
        return []
    differences: list[FieldDifference] = []
    shapes, dtypes = shapes_of(workload), "/".join(dtypes_of(workload))

    def add(field: str, wanted_text: str, stored: str) -> None:
        differences.append(FieldDifference(field=field, wanted=wanted_text, stored=stored))

    if wanted.operator not in (None, workload.op):
        add("operator", str(wanted.operator), workload.op)
    if wanted.dtype is not None and not set(wanted.dtype.split("/")) <= set(dtypes.split("/")):
        add("dtype", wanted.dtype, dtypes)
    absent = [shape for shape in wanted.shapes if shape not in shapes]
    if absent:
        # The same sizes in another order of the axes are another layout, such as NHWC.
        sizes = {tuple(sorted(shape)) for shape in shapes}
        is_layout = all(tuple(sorted(shape)) in sizes for shape in absent)
        add("layout" if is_layout else "shape", _shapes_text(wanted.shapes), _shapes_text(shapes))
    if wanted.structure not in (None, workload.structure):
        add("graph pass", wanted.name, workload.name)
    if wanted.workload is not None and not differences:
        add("workload", wanted.workload, workload.key)
    return differences


def _shapes_text(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def _distance(wanted: WantedSchedule, workload: Workload) -> tuple[int, float]:
    """Return the number of different fields, and the doublings between the shapes."""
    doublings = 0.0
    for shape in wanted.shapes:
        same_rank = [other for other in shapes_of(workload) if len(other) == len(shape)]
        doublings += min((_doublings(shape, other) for other in same_rank), default=inf)
    return len(_compare_workloads(wanted, workload)), doublings


def _doublings(left: Shape, right: Shape) -> float:
    return sum(abs(log2(a / b)) for a, b in zip(left, right, strict=True) if a > 0 and b > 0)
