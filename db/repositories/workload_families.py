"""Families of a target's workloads, each with one cost model, and rounds to test them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, or_, select, update

from mallorn.core.states import RoundState
from mallorn.core.values.decision_log import RoundStats
from mallorn.db.repositories.base import Repository
from mallorn.db.tables import CostModelRow, Job, Round, Task, Workload

RANKED_ROUNDS: Final = 8  # newest rounds read per workload


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """A workload and its family on a target; `family` is empty while it has none."""

    workload_id: int
    key: str
    op: str
    structure: str
    family: str = ""
    why: str = ""
    since: int = 0  # id of the newest ranked round when it joined its family


@dataclass(frozen=True, slots=True)
class RankedRound:
    """A done round, the family of the cost model that ranked it, and its statistics."""

    id: int
    family: str
    stats: RoundStats


class WorkloadFamilies(Repository):
    """Families of workloads with a common cost model, shared by jobs that group alike."""

    def workloads_without_family(self, job_id: str) -> set[int]:
        workloads = select(Task.workload_id).where(Task.job_id == job_id, Task.family == "")
        return set(self.session.scalars(workloads))

    def members(self, job_id: str, target_id: int, grouping: str) -> Sequence[FamilyMember]:
        """Return a job's workloads, and all workloads that share a family with one of them.

        While some have no family, also return all workloads with the same operators.
        `grouping` names the way in which jobs form families; others' are left out.
        """
        of_job = select(Task.workload_id, Task.family).where(Task.job_id == job_id)
        families = dict(self.session.execute(of_job).all())
        is_related: ColumnElement[bool] = self.is_among(
            Task.family, {family for family in families.values() if family}
        )
        if "" in families.values():
            ops = select(Workload.op).where(self.is_among(Workload.id, families))
            is_related = or_(is_related, Workload.op.in_(ops))
        has_grouping = Task.family.startswith(f"{grouping}:", autoescape=True)
        newest = (
            select(func.max(Task.id))
            .join(Job, Job.id == Task.job_id)
            .join(Workload, Workload.id == Task.workload_id)
            .where(Job.target_id == target_id, has_grouping, is_related)
            .group_by(Task.workload_id)
        )
        # The newest task stands for its workload, whose tasks change family together.
        query = _members(Task.family, Task.family_why, Task.family_since)
        query = query.join(Task, Task.workload_id == Workload.id).where(Task.id.in_(newest))
        members = {row[0]: FamilyMember(*row) for row in self.session.execute(query)}
        for row in self.session.execute(_members().where(self.is_among(Workload.id, families))):
            members.setdefault(row[0], FamilyMember(*row))
        return [members[workload_id] for workload_id in sorted(members)]

    def list_ranked_rounds(
        self, workload_ids: Iterable[int], target_id: int
    ) -> Mapping[int, Sequence[RankedRound]]:
        """Return, by workload id, those of its newest done rounds that had a cost model."""
        match = self.is_among(Round.workload_id, workload_ids), Round.target_id == target_id
        conditions = *match, Round.state == RoundState.DONE
        place = func.row_number().over(partition_by=Round.workload_id, order_by=Round.id.desc())
        columns = Round.id, Round.workload_id, Round.cost_model_id, Round.stats
        done_rounds = select(*columns, place.label("place")).where(*conditions).subquery()
        query = (
            select(done_rounds.c.workload_id, done_rounds.c.id, CostModelRow.family, done_rounds.c.stats)
            .join(CostModelRow, CostModelRow.id == done_rounds.c.cost_model_id)
            .where(done_rounds.c.place <= RANKED_ROUNDS)
            .order_by(done_rounds.c.id)
        )
        rounds = defaultdict[int, list[RankedRound]](list)
        for workload_id, round_id, family, stats in self.session.execute(query):
            rounds[workload_id].append(RankedRound(round_id, family, stats or RoundStats()))
        return rounds

    def set_families(self, job_id: str, members: Iterable[FamilyMember]) -> None:
        """Set the families of a job's tasks that have none yet, as given by `members`."""
        groups = defaultdict[FamilyMember, list[int]](list)
        for member in members:
            groups[replace(member, workload_id=0, key="", op="", structure="")].append(member.workload_id)
        for member, ids in groups.items():
            tasks = update(Task).where(Task.job_id == job_id, self.is_among(Task.workload_id, sorted(ids)))
            self.execute_and_count(tasks.where(Task.family == "").values(_family_columns(member)))

    def move(self, target_id: int, old: FamilyMember, new: FamilyMember) -> None:
        """Move a target's workload to another family in all jobs with the old one."""
        jobs = select(Job.id).where(Job.target_id == target_id)
        conditions = Task.workload_id == old.workload_id, Task.family == old.family, Task.job_id.in_(jobs)
        self.execute_and_count(update(Task).where(*conditions).values(_family_columns(new)))


def _members(*columns: Any) -> Select[*tuple[Any, ...]]:
    return select(Workload.id, Workload.key, Workload.op, Workload.structure, *columns)


def _family_columns(member: FamilyMember) -> dict[str, object]:
    return {"family": member.family, "family_why": member.why, "family_since": member.since}
