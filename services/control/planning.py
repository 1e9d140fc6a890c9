"""One planning step of one job: read the state, ask the planner, write its answer."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from db.repositories.devices import Devices
from db.repositories.events import Events
from db.repositories.jobs import Jobs
from db.repositories.leases import Leases
from db.repositories.rounds import NewRound, Rounds
from db.repositories.targets import Targets
from db.repositories.tasks import Tasks, TaskSummary
from db.repositories.workers import Workers
from db.session import Database
from db.tables import Job
from mallorn.core import queues
from mallorn.core.options import JobOptions
from mallorn.core.states import JobState
from services.control.grouping import group
from services.control.views import job_view, measuring_context
from services.planner.planner import plan
from services.planner.values import JobView, Plan, PlannedRound

PLAN_LEASE_SEC = 20.0
FRESH_SEC = 30.0  # a device or worker silent for longer is not counted on

Message = tuple[str, *tuple[object, ...]]  # a task's name and its arguments


@dataclass(frozen=True, slots=True)
class _Step:
    """What one planning step works with."""

    session: Session
    job: Job
    options: JobOptions


def plan_job(database: Database, job_id: str, holder: str) -> list[Message] | None:
    """Messages to send after the commit; None when another process plans this job right now."""
    name = f"plan:{job_id}"
    with database.transaction() as session:
        token = Leases(session).acquire(name, holder, PLAN_LEASE_SEC)
    if token is None:
        return None
    try:
        with database.transaction() as session:
            return _plan(session, job_id)
    finally:
        with database.transaction() as session:
            Leases(session).release(name, token)


def _plan(session: Session, job_id: str) -> list[Message]:
    # The lease saves work; this lock is what keeps two planners from spending one budget twice.
    Jobs(session).lock_job(job_id)
    job = Jobs(session).get(job_id, None)
    if job.state != JobState.TUNING:
        return []
    step = _Step(session, job, JobOptions.model_validate(job.options))
    group(session, job, step.options)
    if job.context_id is None and not _enter_context(step):
        return []
    return _write(step, plan(_view(step)))


def _enter_context(step: _Step) -> bool:
    """The first device of its target gives a job its measuring context; without one it waits and says so."""
    devices = Devices(step.session).list(FRESH_SEC, target_id=step.job.target_id)
    jobs = Jobs(step.session)
    if not devices:
        target = Targets(step.session).get(step.job.target_id).text
        jobs.say(step.job.id, f"waits for a device for {target}: start one with `mallorn device`")
        return False
    jobs.bind_context(step.job.id, measuring_context(step.session, devices[0], step.options))
    jobs.say(step.job.id, "")
    step.session.refresh(step.job)
    return True


def _view(step: _Step) -> JobView:
    view = job_view(step.session, step.job, step.options, _slots(step.session))
    if view.seconds_left is None or view.seconds_left > 0 or not Rounds(step.session).withdraw(step.job.id):
        return view
    # The time is over: rounds that nobody began are not waited for.
    return job_view(step.session, step.job, step.options, view.slots)


def _slots(session: Session) -> int:
    """One round for every worker, and one more, so that none waits for the planner."""
    return max(1, len(Workers(session).list(FRESH_SEC))) + 1


def _write(step: _Step, decision: Plan) -> list[Message]:
    tasks = Tasks(step.session)
    tasks.retire(decision.retired)
    if decision.finished:
        return _finish(step, decision.finished)
    known = {task.id: task for task in tasks.summaries(step.job.id)}
    opened = [_open(step, planned, known[planned.task_id]) for planned in decision.rounds]
    return [message for message in opened if message is not None]


def _open(step: _Step, planned: PlannedRound, task: TaskSummary) -> Message | None:
    new = NewRound(
        job_id=step.job.id,
        task_id=task.id,
        workload_id=task.workload_id,
        target_id=step.job.target_id,
        index=planned.index,
        size=planned.size,
        seed=planned.seed,
        searcher=step.options.search,
        reason=dict(planned.reason),
    )
    if (row := Rounds(step.session).add(new)) is None:  # another job tunes this workload right now
        return None
    payload = {"round": row.index, "task": task.index, "name": task.name, "size": row.size, **row.reason}
    Events(step.session).append(step.job.id, "round_planned", payload)
    return queues.RUN_ROUND, row.id


def _finish(step: _Step, why: str) -> list[Message]:
    Jobs(step.session).move(step.job.id, [JobState.TUNING], JobState.FINISHING, why)
    Events(step.session).append(step.job.id, "finishing", {"why": why})
    return [(queues.FINISH_JOB, step.job.id)]
