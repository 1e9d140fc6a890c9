"""Every route and statement that reads a large table, by name; those that write are rolled back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from mallorn.core.outcomes import Outcome
from mallorn.core.states import WorkKind
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.decision_log import PlannedRound
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.access_control import Usage
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.claim_and_release_work import WorkerAbility, WorkItems
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.decision_log import DecisionLog
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_progress import progress, progress_of
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases
from mallorn.db.repositories.measurement_filters import TrialLimits
from mallorn.db.repositories.measurements import Measurements, NewMeasurement, Records
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.schedules import BestRecords, Schedules
from mallorn.db.repositories.snapshots import Selection, SnapshotRows
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import TaskHistories, Tasks, count_workload_rounds
from mallorn.db.repositories.trials import MeasuredTasks, Trials
from mallorn.db.repositories.withdraw_measurements import Withdrawals
from mallorn.db.repositories.workers import Activity
from mallorn.db.tables import Job, Measurement, Round, Task
from mallorn.services.control.plan_target import survey
from mallorn.workers.round.train_cost_model import MOST_ROWS

OWNER: Final = "local"
LIMITS: Final = TrialLimits("0.27.0", 30.0, 10.0)
UNMEASURED: Final = "w00000"
#: A worker that does everything, on the device classes of nobody.
ABILITY: Final = WorkerAbility(
    frozenset({WorkKind.IMPORT, WorkKind.ROUND, WorkKind.FINISH}), frozenset({"0.27.0"})
)
Act = Callable[[Session], object]


@dataclass(frozen=True, slots=True)
class Met:
    """What the statements are about: a large job that tunes, and one task of it."""

    job: Job
    task: Task
    free: Task  # without a round in flight
    round: Round
    newest: int
    device: str

    @classmethod
    def of(cls, session: Session) -> "Met":
        """Of a filled database."""
        tuning = (
            select(Round)
            .join(Job, Job.id == Round.job_id)
            .where(Job.state == "tuning", Round.state == "queued")
        )
        found = session.scalars(tuning.order_by(Job.owner != OWNER, Round.id).limit(1)).one()
        job, task = Jobs(session).get(found.job_id, None), Tasks(session).get(found.task_id)
        newest = session.scalars(select(Measurement.id).order_by(Measurement.id.desc()).limit(1)).one()
        idle = (
            select(Task)
            .join(Job, Job.id == Task.job_id)
            .where(Task.job_id == job.id, count_workload_rounds() == 0)
        )
        free = session.scalars(idle.order_by(Task.index).limit(1)).one()
        return cls(job, task, free, found, newest, "device7")


def reads(met: Met) -> dict[str, Act]:
    """What only looks."""
    job, task, on = met.job, met.task, met.job.target_id
    workload = task.workload_id
    return {
        "progress": lambda s: progress(s, job),
        "a page of jobs": lambda s: progress_of(s, Jobs(s).list(job.owner).items),
        "summaries": lambda s: Tasks(s).summaries(job.id),
        "standings": lambda s: TaskHistories(s).of(job),
        "survey": lambda s: survey(s, on, Target(Targets(s).get(on).text)),
        "due": lambda s: FairShares(s).list_jobs_to_plan(4),
        "waiting": lambda s: WorkItems(s).has_waiting(ABILITY, 1.0),
        "history": lambda s: Trials(s).history(workload, on, met.newest, job.context_id, LIMITS),
        "refit: growth": lambda s: Trials(s).count_new_family_rows(task.family, on, MOST_ROWS),
        "refit: growth since": lambda s: Trials(s).count_new_family_rows(
            task.family, on, MOST_ROWS, met.newest * 4 // 5
        ),
        "refit: outlines": lambda s: Trials(s).read_family_columns(task.family, on, MOST_ROWS),
        "refit: 4,000 rows": lambda s: Trials(s).by_ids(range(1, 4001)),
        "best": lambda s: Trials(s).best(workload, on, 4, job.context_id),
        "first": lambda s: Trials(s).list_fastest_of_first(
            workload, on, job.context_id, "evolutionary", 64, LIMITS
        ),
        "known": lambda s: Trials(s).count_learnable_by_workload(range(1, 51), on),
        "decision log": lambda s: DecisionLog(s).list(job.id),
        "decision log of a task": lambda s: DecisionLog(s).list(job.id, task_index=task.index),
        "events": lambda s: Events(s).after(job.id, 0),
        "marks": lambda s: Jobs(s).read_event_marks([job.id] * 1000),
        "records of a job": lambda s: Records(s).page(job.owner, job_id=job.id),
        "records of an owner": lambda s: Records(s).page(job.owner),
        "records of an owner on a workload": lambda s: Records(s).page(job.owner, workload="w00007"),
        "records of an outcome": lambda s: Records(s).page(job.owner, outcome=Outcome.WITHDRAWN),
        "schedules": lambda s: Schedules(s).page(job.owner),
        "schedules of a workload": lambda s: Schedules(s).page(job.owner, workload="w00007"),
        "activity": lambda s: Activity(s).rounds(job.owner, 3600, 5000),
        "queued": lambda s: Activity(s).count_waiting(),
        "usage": lambda s: Usage(s).count_remaining_trials(job.owner),
        "logs to forget": lambda s: s.execute(
            select(Job.id).where(Job.id.in_(Removals(s).ended_before(30, 20)))
        ),
        "export: a page's end": lambda s: SnapshotRows(s).page_end(met.newest // 2, met.newest, 20_000),
        "export: a page": lambda s: SnapshotRows(s).page(
            Selection(), met.newest // 2, met.newest // 2 + 20_000
        ),
        "best records": lambda s: BestRecords(s).of_target(on, "own"),
        "recordings: measured": lambda s: MeasuredTasks(s).list(),
        "statistics": lambda s: Statistics(s).of(job.owner),
        "withdraw, counted": lambda s: Withdrawals(s).count(met.device),
    }


def writes(met: Met) -> dict[str, Act]:
    """What changes rows; whoever runs it rolls back."""
    job = met.job
    free = PlannedRound(met.free.id, 2**30, 8, seed=1)
    return {
        "a round is planned": lambda s: Rounds(s).add(job, met.free.workload_id, free, "random"),
        "a round is claimed": lambda s: Rounds(s).claim(met.round.id, "w", 60),
        "a round is proposed": lambda s: _propose(s, met),
        "a batch is committed": lambda s: _commit(s, met),
        "sweep": lambda s: Rounds(s).cancel_queued(),
        "expire": lambda s: _expire(s, job.id),
        "forget logs": lambda s: Removals(s).forget_logs(364.5, 20),
        "withdraw": lambda s: Withdrawals(s).withdraw(met.device),
    }


def _propose(session: Session, met: Met) -> None:
    rounds = Rounds(session)
    hold = rounds.claim(met.round.id, "w", 60)
    assert hold is not None
    ids = [row.id for row in rounds.list_in_flight(met.round)]
    rounds.lock_in_flight(met.round)
    rounds.store_proposals(hold, ids, met.newest, proposals=[], size=8)


def _commit(session: Session, met: Met) -> None:
    hold = Rounds(session).claim(met.round.id, "w", 60)
    assert hold is not None
    fields: dict[str, Any] = {"outcome": Outcome.OK, "origin": "random", "run_us": (10.0,)}
    rows = [
        NewMeasurement(100 + slot, Trial(Candidate("", (slot,)), **fields), 1, met.job.context_id, 1)
        for slot in range(4)
    ]
    Measurements(session).add_trials(hold, rows)


def _expire(session: Session, job_id: str) -> None:
    leases = Leases(session)
    leases.jobs_with_expired_leases()
    leases.free_expired_work(job_id)


ROUTES: Final = (
    "/jobs",
    "/jobs?state=tuning",
    "/jobs/{job}",
    "/jobs/{job}/tasks",
    "/jobs/{job}/rounds",
    "/records?job={job}",
    "/records",
    "/schedules",
    "/dataset/stats",
    "/costmodels",
    "/devices",
    "/workers",
    "/fleet/activity",
    "/models",
    "/options",
)
