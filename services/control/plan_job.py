"""One planning turn of a job: read its state, call the planner, store the decision."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.devices import like_of
from db.repositories.fail_pause_cancel_job import fail_job
from db.repositories.job_events_and_warnings import Events
from db.repositories.jobs import Jobs
from db.repositories.measuring_contexts import Contexts
from db.repositories.replaced_code import ReplacedCode
from db.repositories.rounds import Rounds
from db.repositories.targets import Targets
from db.repositories.task_histories import TaskHistories, TaskHistory
from db.repositories.tasks import Tasks
from db.repositories.workers import Workers
from db.repositories.workload_families import FamilyMember, RankedRound, WorkloadFamilies
from db.tables import Context, Device, Job
from mallorn.core import queues
from mallorn.core.cost_model_name import in_scope, scope_of
from mallorn.core.device_wait_hint import WAITING
from mallorn.core.errors import ClassRefused, PluginFailed, UnknownName
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.plugins import blame_plugins, check_classes
from mallorn.core.registry import resolve
from mallorn.core.settings import settings
from mallorn.core.stand_in_measurers import is_built_by_tvm, stand_in
from mallorn.core.states import ZERO_SHOT, JobState
from mallorn.core.targets import Target
from mallorn.core.values.event import FamilyChangedEvent, FinishingEvent, RoundPlannedEvent
from services.control.planner_input import job_view, measuring_context
from services.control.wait_for_device import WaitLimit, wait_for_device
from services.control.wake_messages import Message
from services.planner.families.base import Families, Member, Ranking
from services.planner.planner import plan
from services.planner.planner_values import JobPlan, JobView

ANSWERS: Final = "what is known answers"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class PlannedJob:
    """The result of a planning turn; `over` if the job gets no further rounds."""

    messages: list[Message] = field(default_factory=list)
    opened: int = 0
    candidates: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class _JobStep:
    """The session, job and options of one planning turn."""

    session: Session
    job: Job
    options: JobOptions


def plan_job(
    session: Session,
    job_id: str,
    slots: int,
    devices: Sequence[Device],
    patience: WaitLimit,
    carried: bool = False,
) -> PlannedJob:
    """Plan a job and open at most `slots` rounds; `devices` are its target's live devices.

    A job with a detached device gets rounds only if the caller carries batches (`carried`).
    """
    Jobs(session).lock_job(job_id)
    job = Jobs(session).get(job_id, None)
    if job.state != JobState.TUNING:
        return PlannedJob(over=True)
    options = KeptOptions.model_validate(job.options)
    step = _JobStep(session, job, options)
    try:
        options.check_known()
        check_classes(step.options, settings().plugins)
        with blame_plugins(("policy", step.options.policy), ("families", step.options.families)):
            if options.is_detached:
                return _plan_detached(step, slots if carried else 0)
            return _plan(step, slots, devices, patience)
    except UnknownName as error:
        Jobs(session).say(job_id, error.reason)
        return PlannedJob(over=True)
    except (ClassRefused, PluginFailed) as error:
        # Without its policy or its families a job cannot run as its owner requested.
        log.error("the job fails: %s", error, exc_info=error)
        fail_job(session, job_id, JobState.TUNING, error)
        return PlannedJob(over=True)


def _plan(step: _JobStep, slots: int, devices: Sequence[Device], patience: WaitLimit) -> PlannedJob:
    turn, jobs = PlannedJob(messages=group(step.session, step.job, step.options)), Jobs(step.session)
    if comparable := _comparable_devices(step, devices):
        if step.job.cause in WAITING:
            jobs.say(step.job.id, "")
        if step.job.context_id is None:  # the target's first device sets it
            context_id = measuring_context(step.session, comparable[0], step.options)
            jobs.bind_context(step.job.id, context_id)
            step.session.refresh(step.job)
    elif step.options.mode == ZERO_SHOT:  # such a job runs nothing and needs no device
        _write(step, turn, (), JobPlan(finished=ANSWERS))
    elif not stand_in(Target(Targets(step.session).get(step.job.target_id).text)):
        if wait_for_device(step.session, step.job, patience, devices):
            return PlannedJob(messages=turn.messages, over=True)
        slots = 0
    if not turn.over and step.job.context_id is not None:
        _write(step, turn, *_decide(step, slots))
    return turn


def _plan_detached(step: _JobStep, slots: int) -> PlannedJob:
    """Plan a job with a detached device, whose class is unknown until the first results."""
    turn = PlannedJob(messages=group(step.session, step.job, step.options))
    if not step.job.reason:
        Jobs(step.session).say(step.job.id, f"mallorn batch next {step.job.id} -o FILE")
    _write(step, turn, *_decide(step, slots))
    return turn


def _comparable_devices(step: _JobStep, devices: Sequence[Device]) -> Sequence[Device]:
    """Return the devices whose times are comparable with the job's measurements."""
    if step.job.context_id is None or not step.options.searches:
        return devices
    context = Contexts(step.session).get(step.job.context_id)
    comparable = [device for device in devices if like_of(device) == like_of(context)]
    return comparable or _upgraded(step, context, devices)


def _upgraded(step: _JobStep, context: Context, devices: Sequence[Device]) -> Sequence[Device]:
    """Return devices that differ only in their TVM version; move the job to their context.

    This counts as an upgrade only if no worker has the job's builder any more.
    """
    like, workers = like_of(context), Workers(step.session)
    same = [each for each in devices if replace(like_of(each), tvm_version=like.tvm_version) == like]
    builder = workers.builder() if is_built_by_tvm(step.options) else None
    if not same or builder is None or context.builder in workers.builders():
        return ()
    ReplacedCode(step.session).rebind(step.job.id, context, builder, same[0].tvm_version)
    step.session.refresh(step.job)
    return same


def _decide(step: _JobStep, slots: int) -> tuple[Sequence[TaskHistory], JobPlan]:
    if not step.options.searches:
        return (), JobPlan(finished=ANSWERS)
    tasks, view = _view(step)
    is_late = view.seconds_left is not None and view.seconds_left <= 0
    if is_late and Rounds(step.session).withdraw(step.job.id):
        tasks, view = _view(step)  # after the deadline, pending rounds are withdrawn
    return tasks, plan(replace(view, slots=view.open_rounds + slots))


def _view(step: _JobStep) -> tuple[Sequence[TaskHistory], JobView]:
    tasks = TaskHistories(step.session).of(step.job)
    return tasks, job_view(step.session, step.job, step.options, tasks)


def _write(step: _JobStep, turn: PlannedJob, tasks: Sequence[TaskHistory], decision: JobPlan) -> None:
    Tasks(step.session).retire(decision.retired)
    jobs, events, job_id = Jobs(step.session), Events(step.session), step.job.id
    if why := decision.finished:
        turn.over = True
        jobs.move(job_id, [JobState.TUNING], JobState.FINISHING, why)
        jobs.record(job_id, tuning_ended=why)
        events.append(job_id, FinishingEvent(why=why, outlook=decision.outlook))
        turn.messages.append((queues.FINISH_JOB, job_id))
    task_by_id = {task.id: task for task in tasks}
    for planned in decision.rounds:
        task, searcher = task_by_id[planned.task_id], planned.searcher or step.options.search
        row = Rounds(step.session).add(step.job, task.workload_id, planned, searcher)
        if row is None:  # another job tunes this workload right now
            continue
        place = {"round": row.index, "task": task.index, "name": task.name, "size": row.size}
        event = place | planned.reason.stored() | ({"outlook": decision.outlook} if decision.outlook else {})
        events.append(job_id, RoundPlannedEvent.model_validate(event))
        turn.messages.append((queues.RUN_ROUND, row.id))
        turn.opened += 1
        turn.candidates += planned.size


def group(session: Session, job: Job, options: JobOptions) -> list[Message]:
    """Assign tasks to families; return messages to train the models of changed families."""
    stored = WorkloadFamilies(session)
    grouping: Families = resolve("families", options.families)()
    scope = scope_of(job.owner) if options.is_private else ""
    unplaced = stored.unplaced(job.id)
    if not grouping.revises and not unplaced:
        return []
    old = stored.seats(job.id, job.target_id, f"{scope}{options.families}")
    revisable = [seat.workload_id for seat in old if seat.family] if grouping.revises else []
    rounds = stored.ranked(revisable, job.target_id)
    members = [_member(seat, rounds.get(seat.workload_id, ()), scope) for seat in old]
    new = _new_seats(grouping, old, members, scope)
    moved = [(was, seat) for was, seat in zip(old, new, strict=True) if was.family not in ("", seat.family)]
    for was, seat in moved:
        stored.move(job.target_id, was, seat)
    stored.seat(job.id, [seat for seat in new if seat.workload_id in unplaced])
    # Tell the job, and train a changed family's model before its next round is proposed.
    tasks = {task.workload_id: task for task in Tasks(session).list(job.id)}
    train: dict[str, Message] = {}
    for was, seat in moved:
        if (task := tasks.get(seat.workload_id)) is not None:
            event = FamilyChangedEvent(
                task=task.index, name=task.name, old=was.family, new=seat.family, why=seat.why
            )
            Events(session).append(job.id, event)
            train.setdefault(seat.family, (queues.TRAIN_COST_MODEL, job.id, task.id))
    return list(train.values())


def _member(seat: FamilyMember, rounds: Sequence[RankedRound], scope: str) -> Member:
    """Convert a stored workload for the grouping; family names lose the owner's scope."""
    rankings: list[Ranking] = []
    for row in rounds:
        if row.id > seat.since and in_scope(row.family, scope):
            others = {family.removeprefix(scope): share for family, share in row.stats.rank_others.items()}
            rankings.append(Ranking(row.id, row.family.removeprefix(scope), row.stats.rank_own, others))
    family = seat.family.removeprefix(scope)
    return Member(seat.workload_id, seat.key, seat.op, seat.structure, family, seat.why, tuple(rankings))


def _new_seats(
    grouping: Families, seats: Sequence[FamilyMember], members: Sequence[Member], scope: str
) -> list[FamilyMember]:
    """Return all new placements; evidence from earlier rounds is dropped after a move."""
    places = grouping.group(members)
    judged = max((ranking.round for member in members for ranking in member.rankings), default=0)
    placed = [replace(seat, family=f"{scope}{places[seat.workload_id].family}") for seat in seats]
    return [
        seat
        if seat.family == was.family
        else replace(seat, why=places[seat.workload_id].why, since=max(was.since, judged))
        for was, seat in zip(seats, placed, strict=True)
    ]
