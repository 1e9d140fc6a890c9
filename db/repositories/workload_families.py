"""Families: the placement of a target's workloads, the reason, and the ranking evidence since."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, or_, select, update

from db.repositories.base import Repository
from db.tables import CostModelRow, Job, Round, Task, Workload
from mallorn.core.states import RoundState
from mallorn.core.values.decision_log import RoundStats

RANKED_ROUNDS: Final = 8  # newest rounds read per workload


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A workload's place on a target; `family` is empty while it has none."""

    workload_id: int
    key: str
    op: str
    structure: str
    family: str = ""
    why: str = ""
    since: int = 0  # the newest judged round when it joined its family


@dataclass(frozen=True, slots=True)
class RankedRound:
    """A closed round, the family whose model proposed it, and its ranking figures."""

    id: int
    family: str
    stats: RoundStats


class WorkloadFamilies(Repository):
    """The places of workloads, which all jobs of a target with the same grouping share."""

    def unplaced(self, job_id: str) -> set[int]:
        """The workloads of a job's tasks that have no family yet."""
        new = select(Task.workload_id).where(Task.job_id == job_id, Task.family == "")
        return set(self.session.scalars(new))

    def seats(self, job_id: str, target_id: int, grouping: str) -> Sequence[FamilyMember]:
        """Of a job's workloads and all in their families; while some have none, all of their operators."""
        of_job = select(Task.workload_id, Task.family).where(Task.job_id == job_id)
        families = dict(self.session.execute(of_job).all())
        near: ColumnElement[bool] = self.among(
            Task.family, {family for family in families.values() if family}
        )
        if "" in families.values():
            ops = select(Workload.op).where(self.among(Workload.id, families))
            near = or_(near, Workload.op.in_(ops))
        newest = (
            select(func.max(Task.id))
            .join(Job, Job.id == Task.job_id)
            .join(Workload, Workload.id == Task.workload_id)
            .where(Job.target_id == target_id, Task.family.startswith(f"{grouping}:", autoescape=True), near)
            .group_by(Task.workload_id)
        )
        # The newest task represents its workload; all its tasks move together.
        placed = _seats(Task.family, Task.family_why, Task.family_since)
        placed = placed.join(Task, Task.workload_id == Workload.id).where(Task.id.in_(newest))
        found = {row[0]: FamilyMember(*row) for row in self.session.execute(placed)}
        for row in self.session.execute(_seats().where(self.among(Workload.id, families))):
            found.setdefault(row[0], FamilyMember(*row))
        return [found[workload_id] for workload_id in sorted(found)]

    def ranked(self, workload_ids: Iterable[int], target_id: int) -> Mapping[int, Sequence[RankedRound]]:
        """The newest rounds of each workload that a model proposed, oldest first."""
        same = self.among(Round.workload_id, workload_ids), Round.target_id == target_id
        place = func.row_number().over(partition_by=Round.workload_id, order_by=Round.id.desc())
        columns = Round.id, Round.workload_id, Round.cost_model_id, Round.stats
        closed = (
            select(*columns, place.label("place")).where(*same, Round.state == RoundState.DONE).subquery()
        )
        query = (
            select(closed.c.workload_id, closed.c.id, CostModelRow.family, closed.c.stats)
            .join(CostModelRow, CostModelRow.id == closed.c.cost_model_id)
            .where(closed.c.place <= RANKED_ROUNDS)
            .order_by(closed.c.id)
        )
        found = defaultdict[int, list[RankedRound]](list)
        for workload_id, round_id, family, stats in self.session.execute(query):
            found[workload_id].append(RankedRound(round_id, family, stats or RoundStats()))
        return found

    def seat(self, job_id: str, seats: Iterable[FamilyMember]) -> None:
        """Give a job's new tasks their places."""
        alike = defaultdict[FamilyMember, list[int]](list)
        for seat in seats:
            alike[replace(seat, workload_id=0, key="", op="", structure="")].append(seat.workload_id)
        for seat, ids in alike.items():
            new = Task.job_id == job_id, self.among(Task.workload_id, sorted(ids)), Task.family == ""
            self.changed(update(Task).where(*new).values(_place(seat)))

    def move(self, target_id: int, old: FamilyMember, new: FamilyMember) -> None:
        """Move a workload of a target to another family, in every job that has it in the old one."""
        jobs = select(Job.id).where(Job.target_id == target_id)
        same = Task.workload_id == old.workload_id, Task.family == old.family, Task.job_id.in_(jobs)
        self.changed(update(Task).where(*same).values(_place(new)))


def _seats(*columns: Any) -> Select[*tuple[Any, ...]]:
    return select(Workload.id, Workload.key, Workload.op, Workload.structure, *columns)


def _place(seat: FamilyMember) -> dict[str, object]:
    return {"family": seat.family, "family_why": seat.why, "family_since": seat.since}
