"""Plans one job: converts its rows for the planner, calls it, and stores the decision."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core import queues
from mallorn.core.check_plugin_classes import check_allowed_classes, convert_plugin_errors
from mallorn.core.cost_model_name import private_family_prefix
from mallorn.core.errors import ClassRefused, MallornError, MissingPackage, PluginFailed, UnknownName
from mallorn.core.job_options import JobOptions, KeptOptions
from mallorn.core.log_setup import log_survived_error
from mallorn.core.registry import resolve
from mallorn.core.settings import settings
from mallorn.core.states import WRITE, ZERO_SHOT, Cause, JobState, Waiting
from mallorn.core.targets import Target
from mallorn.core.values.event import FamilyChangedEvent, FinishingEvent, RoundPlannedEvent
from mallorn.core.values.learning_curve import ClosedRounds, WorkloadCurve
from mallorn.core.values.machine import machine_limit_us
from mallorn.db.repositories.devices import machine_key_of
from mallorn.db.repositories.fair_shares import FairShares, JobToPlan
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_transitions import ReplacedCode, fail_job
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.tasks import TaskHistories, TaskHistory, Tasks
from mallorn.db.repositories.workers import Workers
from mallorn.db.repositories.workload_families import FamilyMember, RankedRound, WorkloadFamilies
from mallorn.db.session import Database
from mallorn.db.tables import Device, Job
from mallorn.services.control.wait_for_device import WaitLimit, wait_for_device
from mallorn.services.planner.families.base import Families, Member
from mallorn.services.planner.plan_rounds import plan_rounds
from mallorn.services.planner.planner_values import ROUND_SIZE, JobPlan, JobView, Point, TaskView

ANSWERS: Final = "what is known answers"
NEEDS_BATCH: Final = "a batch takes its next candidates to the device"
log = logging.getLogger(__name__)


def iterate_curve_points(job: Job, task: TaskHistory) -> Iterator[Point]:
    """Yield, per measured round of a task, the trials so far and the round's best time."""
    # `known_at_start` counts the dataset's rows at import; subtract rounds yielded here.
    earlier = sum(point.trials for point in task.curve.points if point.closed_at < job.created_at)
    trials = max(0, task.known_at_start - earlier)
    for point in task.curve.points:
        trials += point.trials
        yield Point(trials, point.best_us)


def mean_seconds_per_trial(parts: Iterable[WorkloadCurve | ClosedRounds]) -> float | None:
    """Return the mean seconds per trial of finished rounds; None if there is none."""
    timed = [part for part in parts if part.timed_trials]
    return sum(part.timed_sec for part in timed) / sum(part.timed_trials for part in timed) if timed else None


def ensure_measuring_context(session: Session, device: Device, options: JobOptions, target: Target) -> int:
    """Find or create the measuring context of such devices and options; return its id."""
    context = Contexts(session).ensure(
        target_id=device.target_id,
        host_class=device.host_class,
        tvm_version=device.tvm_version,
        threads=device.threads,
        evaluator=options.timing(target),
        built_by=Workers(session).builder(target.toolchain) if options.uses_builder else None,
    )
    return context.id


def job_view(row: JobToPlan, options: JobOptions, tasks: Sequence[TaskHistory]) -> JobView:
    """Return the planner's input for a job; `max_open_rounds`, still 0, is to be set by the caller."""
    job = row.job
    return JobView(
        id=job.id,
        seed=job.seed,
        policy=options.policy,
        round_size=options.round_size,
        trials=job.trials,
        tasks=tuple(_task_view(job, task, options.only) for task in tasks),
        rounds_planned=row.next_index,
        max_open_rounds=0,
        seconds_left=row.seconds_left,
        seconds_per_trial=mean_seconds_per_trial([task.own for task in tasks])
        or mean_seconds_per_trial([task.curve for task in tasks]),
        task_trials=options.task_trials,
        usual_size=ROUND_SIZE if (hardware := row.target.measured_by) is None else hardware.round_size,
    )


def _task_view(job: Job, task: TaskHistory, patterns: Sequence[str]) -> TaskView:
    return TaskView(
        id=task.id,
        index=task.index,
        name=task.name,
        weight=task.weight,
        flops=task.flops,
        family=task.family,
        trials=task.own.trials + sum(row.trials for row in task.open_rounds),
        rounds=task.own.rounds,
        open_sizes=tuple(row.size - row.trials for row in task.open_rounds),
        workload_rounds=task.workload_rounds,
        points=tuple(iterate_curve_points(job, task)),
        known_us=task.known_us,
        seconds_per_trial=mean_seconds_per_trial([task.curve]),
        failed_rounds=task.own.failed_rounds,
        lost_rounds=task.own.lost_rounds,
        # A task has weight 0 if only replaced code extracted it from the model.
        left_out=not task.weight
        or (bool(patterns) and not any(fnmatchcase(task.name, pattern) for pattern in patterns)),
        exhausted=task.own.is_exhausted,
        retired=task.retired,
        limit_us=machine_limit_us(job.machine, task.flops, task.args["args"]),
    )


@dataclass(slots=True)
class PlannedJob:
    """Result of one planning of a job; `over` is True if the job gets no further rounds."""

    messages: list[queues.Message] = field(default_factory=list)
    opened: int = 0
    candidates: int = 0
    over: bool = False
    unsettled: Job | None = None  # the job, if `settle_rounds` would store its rounds


def _basis(row: JobToPlan, max_new_rounds: int) -> tuple[object, ...]:
    """Return what must be the same when a plan is stored as when it was drafted."""
    job = row.job
    columns = job.state, job.context_id, job.machine, job.trials, job.minutes, job.options
    return *columns, row.next_index, row.open_rounds, max_new_rounds


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """A plan that was computed without a lock on the job."""

    basis: tuple[object, ...]
    tasks: Sequence[TaskHistory]
    plan: JobPlan


@dataclass
class _JobStep:
    session: Session
    row: JobToPlan
    options: JobOptions
    draft: PlanDraft | None = None

    @cached_property
    def live_builder(self) -> str:
        """The builder of the job's measurements if a live worker has it; otherwise empty."""
        builder = "" if self.row.context is None else self.row.context.builder
        return builder if builder in Workers(self.session).builders() else ""


def draft_plan(database: Database, job_id: str, max_new_rounds: int) -> PlanDraft | None:
    """Plan a job without locking it; None if only `plan_job` can plan it now."""
    if not max_new_rounds:
        return None
    with database.session() as session, suppress(MallornError):  # plan_job handles them
        row = FairShares(session).job_to_plan(job_id)
        options = KeptOptions.model_validate(row.job.options)
        is_bound = row.job.state == JobState.TUNING and row.job.context_id is not None
        if not is_bound or options.is_detached or not options.needs_measurements:
            return None
        if (row.seconds_left is not None and row.seconds_left <= 0) or row.has_new_tasks:
            return None
        options.check_all_readable()
        check_allowed_classes(options, settings().plugins)
        with convert_plugin_errors(("policy", options.policy)):
            tasks = TaskHistories(session).of(row.job, is_snapshot=True)
            plan = _plan(row, options, tasks, max_new_rounds)
            return PlanDraft(_basis(row, max_new_rounds), tasks, plan)
    return None


def settle_rounds(database: Database, job: Job) -> None:
    """Store what later plans need of the closed rounds of a job's workloads.

    Plans are right without it, and the next plan tries again, so no failure ends planning.
    """
    try:
        with database.transaction() as session:
            LearningCurves(session).settle(job)
    except Exception as error:
        log_survived_error("could not store the learning curves of a job", error)


def plan_job(
    session: Session,
    job_id: str,
    max_new_rounds: int,
    devices: Sequence[Device],
    wait_limit: WaitLimit,
    is_carried_in_files: bool = False,
    draft: PlanDraft | None = None,
) -> PlannedJob:
    """Plan a job and open at most `max_new_rounds` rounds, or end its tuning, or let it wait.

    `devices` are the live devices of its target. A job for a device that no worker reaches
    gets rounds only if `carried`: they are then taken to the device in files (`mallorn
    batch`). A `draft` is stored if the job is still as it was then, or else computed again.
    """
    Jobs(session).lock_jobs([job_id])
    row = FairShares(session).job_to_plan(job_id)
    job = row.job  # and as it is read again below
    if job.state != JobState.TUNING:
        return PlannedJob(over=True)
    options = KeptOptions.model_validate(job.options)
    step = _JobStep(session, row, options, draft)
    try:
        options.check_all_readable()
        _ = row.target.toolchain  # raises MissingPackage if its kind is not installed
        check_allowed_classes(step.options, settings().plugins)
        with convert_plugin_errors(("policy", step.options.policy), ("families", step.options.families)):
            turn, jobs = PlannedJob(messages=group_into_families(session, row, options)), Jobs(session)
            if turn.messages:  # workloads have moved to other families
                step.draft = None
            if options.is_detached:  # no worker reaches the device; first results name its host class
                if not job.waiting_because:
                    jobs.set_waiting(job_id, Waiting(NEEDS_BATCH, f"mallorn batch next {job_id} -o FILE"))
                plan = _compute_job_plan(step, max_new_rounds if is_carried_in_files else 0)
                _apply_job_plan(step, turn, *plan)
                return turn
            if comparable := _comparable_devices(step, devices):
                if job.cause != Cause.OTHER:  # it waited for a device
                    jobs.set_step(job_id, job.step)
                if job.context_id is None:  # the target's first device sets it
                    context_id = ensure_measuring_context(session, comparable[0], options, row.target)
                    jobs.bind_context(job_id, context_id)
                    step.row = FairShares(session).job_to_plan(job_id)
            elif options.mode == ZERO_SHOT:  # such a job runs nothing and needs no device
                _apply_job_plan(step, turn, (), JobPlan(finished=ANSWERS))
            elif not row.target.virtual_device:
                if wait_for_device(session, job, wait_limit, devices):
                    return PlannedJob(messages=turn.messages, over=True)
                max_new_rounds = 0
                step.row = FairShares(session).job_to_plan(job_id)
            if not turn.over and job.context_id is not None:
                _apply_job_plan(step, turn, *_compute_job_plan(step, max_new_rounds))
            return turn
    except (MissingPackage, UnknownName) as error:
        Jobs(session).set_waiting(job_id, Waiting(error.message, error.hint))
        return PlannedJob(over=True)
    except (ClassRefused, PluginFailed) as error:
        # Without its policy or its families a job cannot run as its owner requested.
        log.error("the job fails: %s", error, exc_info=error)
        fail_job(session, job_id, JobState.TUNING, error)
        return PlannedJob(over=True)


def _comparable_devices(step: _JobStep, devices: Sequence[Device]) -> Sequence[Device]:
    """Return the devices whose times are comparable with the job's measurements.

    If TVM was upgraded, so that no worker compiles with the job's version any more, move the
    job to the context of devices that differ only in their TVM version, and return these.
    """
    context = step.row.context
    if context is None or not step.options.needs_measurements:
        return devices
    host = machine_key_of(context)
    if comparable := [device for device in devices if machine_key_of(device) == host]:
        return comparable
    upgraded = [
        device for device in devices if replace(machine_key_of(device), tvm_version=host.tvm_version) == host
    ]
    workers = Workers(step.session)
    builder = workers.builder(step.row.target.toolchain) if step.options.uses_builder else None
    if not upgraded or builder is None or context.builder in workers.builders():
        return ()
    job_id, upgraded_to = step.row.job.id, upgraded[0].tvm_version
    ReplacedCode(step.session).move_to_new_builder(job_id, context, builder, upgraded_to)
    step.row = FairShares(step.session).job_to_plan(job_id)
    return upgraded


def _compute_job_plan(step: _JobStep, max_new_rounds: int) -> tuple[Sequence[TaskHistory], JobPlan]:
    if not step.options.needs_measurements:
        return (), JobPlan(finished=ANSWERS)
    left, job = step.row.seconds_left, step.row.job
    is_late = left is not None and left <= 0
    if is_late and Rounds(step.session).cancel_queued(job.id):
        step.row = FairShares(step.session).job_to_plan(job.id)
    if not max_new_rounds and step.row.open_rounds:
        return (), JobPlan()  # no history would open a round, or end tuning
    if (draft := step.draft) and draft.basis == _basis(step.row, max_new_rounds):
        return draft.tasks, draft.plan
    tasks = TaskHistories(step.session).of(job)
    return tasks, _plan(step.row, step.options, tasks, max_new_rounds)


def _plan(row: JobToPlan, options: JobOptions, tasks: Sequence[TaskHistory], max_new_rounds: int) -> JobPlan:
    view = job_view(row, options, tasks)
    return plan_rounds(replace(view, max_open_rounds=view.open_rounds + max_new_rounds))


def _apply_job_plan(
    step: _JobStep, turn: PlannedJob, tasks: Sequence[TaskHistory], decision: JobPlan
) -> None:
    job, target = step.row.job, step.row.target
    turn.unsettled = None if all(task.is_settled for task in tasks) else job
    Tasks(step.session).retire(decision.retired)
    jobs, events, job_id = Jobs(step.session), Events(step.session), job.id
    if reason := decision.finished:
        turn.over = True
        jobs.move_to_state(job_id, [JobState.TUNING], JobState.FINISHING)
        jobs.store_report_columns(job_id, tuning_ended=reason, is_bench=False)
        events.append(job_id, FinishingEvent(reason=reason, outlook=decision.outlook))
        turn.messages.append((queues.WORK, queues.capability(target.toolchain)))
    task_by_id = {task.id: task for task in tasks}
    for plan_of_round in decision.rounds:
        task, searcher = task_by_id[plan_of_round.task_id], plan_of_round.searcher or step.options.search
        row = Rounds(step.session).add(job, task.workload_id, plan_of_round, searcher)
        place = {"round": row.index, "task": task.index, "name": task.name, "size": row.size}
        outlook = {"outlook": decision.outlook} if decision.outlook else {}
        event = place | plan_of_round.reason.to_stored_json() | outlook
        events.append(job_id, RoundPlannedEvent.model_validate(event))
        capability = queues.capability(target.toolchain, step.live_builder)
        turn.messages.append((queues.WORK, capability))
        turn.opened += 1
        turn.candidates += plan_of_round.size


def group_into_families(session: Session, planned: JobToPlan, options: JobOptions) -> list[queues.Message]:
    """Group the job's workloads into families, which share a cost model. Returns messages
    that train the models of families to which workloads moved."""
    repository, job = WorkloadFamilies(session), planned.job
    grouping: Families = resolve("families", options.families)()
    scope = private_family_prefix(job.owner) if options.private else ""
    if options.dataset != WRITE:  # no other job's cost model learns from this job's measurements
        scope = private_family_prefix(job.id)
    if not grouping.revises and not planned.has_new_tasks:
        return []
    unplaced = repository.workloads_without_family(job.id)
    old_rows = repository.members(job.id, job.target_id, f"{scope}{options.families}")
    revisable = [row.workload_id for row in old_rows if row.family] if grouping.revises else []
    rounds = repository.list_ranked_rounds(revisable, job.target_id)
    members = [_member(row, rounds.get(row.workload_id, ()), scope) for row in old_rows]
    placements = grouping.group(members)

    # After a move, evidence from earlier rounds is dropped.
    all_rounds = [round_ for of_workload in rounds.values() for round_ in of_workload]
    newest_round = max((round_.id for round_ in all_rounds), default=0)
    new_rows: list[FamilyMember] = []
    moves: list[tuple[FamilyMember, FamilyMember]] = []
    for old in old_rows:
        placement = placements[old.workload_id]
        new = replace(old, family=f"{scope}{placement.family}")
        if new.family != old.family:
            new = replace(new, why=placement.why, since=max(old.since, newest_round))
        new_rows.append(new)
        if old.family not in ("", new.family):
            moves.append((old, new))
    for old, new in moves:
        repository.move(job.target_id, old, new)
    repository.set_families(job.id, [row for row in new_rows if row.workload_id in unplaced])

    # Log the moves, and train a changed family's model before its next round is proposed.
    tasks = {task.workload_id: task for task in Tasks(session).list(job.id)}
    messages: dict[str, queues.Message] = {}
    for old, new in moves:
        if (task := tasks.get(new.workload_id)) is not None:
            event = FamilyChangedEvent(
                task=task.index, name=task.name, old=old.family, new=new.family, reason=new.why
            )
            Events(session).append(job.id, event)
            messages.setdefault(new.family, (queues.TRAIN_COST_MODEL, job.id, task.id))
    return list(messages.values())


def _member(row: FamilyMember, rounds: Sequence[RankedRound], scope: str) -> Member:
    """Convert a stored workload for the planner; drop the owner's prefix of its family."""
    new_rounds = [round_ for round_ in rounds if round_.id > row.since]
    own_rounds = [round_ for round_ in new_rounds if round_.family == row.family]
    shares = (round_.stats.own_accuracy for round_ in own_rounds)
    return Member(
        id=row.workload_id,
        key=row.key,
        op=row.op,
        structure=row.structure,
        family=row.family.removeprefix(scope),
        why=row.why,
        rank_shares=tuple(share for share in shares if share is not None),
    )
