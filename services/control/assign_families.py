"""Gives the tasks of a job their families, and moves them where the evidence says so."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy.orm import Session

from db.repositories.job_events_and_warnings import Events
from db.repositories.tasks import Tasks
from db.repositories.workload_families import FamilyMember, RankedRound, WorkloadFamilies
from db.tables import Job
from mallorn.core import queues
from mallorn.core.cost_model_name import in_scope, scope_of
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import resolve
from mallorn.core.values.event import FamilyChangedEvent
from services.control.wake_messages import Message
from services.planner.families.base import Families, Member, Ranking


def group(session: Session, job: Job, options: JobOptions) -> list[Message]:
    """Place new tasks, and the others too if the grouping revises itself; models to train meanwhile."""
    stored = WorkloadFamilies(session)
    grouping: Families = resolve("families", options.families)()
    scope = scope_of(job.owner) if options.is_private else ""
    unplaced = stored.unplaced(job.id)
    if not grouping.revises and not unplaced:
        return []
    old = stored.seats(job.id, job.target_id, f"{scope}{options.families}")
    judged = [seat.workload_id for seat in old if seat.family] if grouping.revises else []
    rounds = stored.ranked(judged, job.target_id)
    members = [_member(seat, rounds.get(seat.workload_id, ()), scope) for seat in old]
    new = _decide(grouping, old, members, scope)
    moved = [(was, seat) for was, seat in zip(old, new, strict=True) if was.family not in ("", seat.family)]
    for was, seat in moved:
        stored.move(job.target_id, was, seat)
    stored.seat(job.id, [seat for seat in new if seat.workload_id in unplaced])
    return _announce(session, job, moved)


def _member(seat: FamilyMember, rounds: Sequence[RankedRound], scope: str) -> Member:
    """A seat as groupings know it: the scope is none of their business."""
    rankings: list[Ranking] = []
    for row in rounds:
        if row.id > seat.since and in_scope(row.family, scope):
            others = {family.removeprefix(scope): share for family, share in row.stats.rank_others.items()}
            rankings.append(Ranking(row.id, row.family.removeprefix(scope), row.stats.rank_own, others))
    family = seat.family.removeprefix(scope)
    return Member(seat.workload_id, seat.key, seat.op, seat.structure, family, seat.why, tuple(rankings))


def _decide(
    grouping: Families, old: Sequence[FamilyMember], members: Sequence[Member], scope: str
) -> list[FamilyMember]:
    """Where everyone is now; who moves begins with no evidence, as the rounds so far were judged already."""
    places = grouping.group(members)
    judged = max((ranking.round for member in members for ranking in member.rankings), default=0)
    new = [replace(seat, family=f"{scope}{places[seat.workload_id].family}") for seat in old]
    return [
        seat
        if seat.family == was.family
        else replace(seat, why=places[seat.workload_id].why, since=max(was.since, judged))
        for was, seat in zip(old, new, strict=True)
    ]


def _announce(
    session: Session, job: Job, moved: Sequence[tuple[FamilyMember, FamilyMember]]
) -> list[Message]:
    """Tell the job, and have a changed family's model trained before its next round is proposed."""
    tasks = {task.workload_id: task for task in Tasks(session).list(job.id)}
    train: dict[str, Message] = {}
    for was, seat in moved:
        if (task := tasks.get(seat.workload_id)) is not None:
            told = FamilyChangedEvent(
                task=task.index, name=task.name, old=was.family, new=seat.family, why=seat.why
            )
            Events(session).append(job.id, told)
            train.setdefault(seat.family, (queues.TRAIN_COST_MODEL, job.id, task.id))
    return list(train.values())
