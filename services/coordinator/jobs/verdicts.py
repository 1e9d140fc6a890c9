"""The verdict on a job, from its rows."""

from itertools import accumulate

from sqlalchemy.orm import Session

from db.repositories.progress import Progress
from db.repositories.tasks import TaskEffort, Tasks
from db.tables import Job
from mallorn.core.states import JobState
from mallorn.core.values.report import FinishReport
from mallorn.core.values.verdict import Verdict
from mallorn.results.verdict import JobFacts, judge
from services.planner.useful import TaskSpending, trials_left
from services.planner.values import Point


def verdict_of(session: Session, job: Job, progress: Progress) -> Verdict:
    """How well a job did and what to type next; what is left to win is asked only where it is done."""
    state = JobState(job.state)
    facts = JobFacts(
        job_id=job.id,
        name=job.name,
        state=state,
        reason=job.reason,
        trials=progress.spent,
        useful_trials=_useful(session, job, progress) if state is JobState.DONE else None,
        report=job.report or FinishReport(),
        warnings=job.warnings,
    )
    return judge(facts)


def _useful(session: Session, job: Job, progress: Progress) -> int | None:
    """None where no task is known."""
    tasks = Tasks(session).efforts(job.id)
    if not tasks:
        return None
    return progress.spent + trials_left(_effort(task, progress) for task in tasks)


def _effort(task: TaskEffort, progress: Progress) -> TaskSpending:
    best_us = progress.best_us.get(task.id)
    too_small = progress.steered and best_us is None and not task.rounds  # the first pass left it out
    spent = accumulate((result.trials for result in task.rounds), initial=task.known_at_start)
    own = zip(list(spent)[1:], task.rounds, strict=True)
    return TaskSpending(
        weight=task.weight,
        best_us=best_us,
        points=tuple(Point(trials, result.best_us) for trials, result in own),
        known_trials=task.known_at_start,
        over=bool(task.retired) or too_small,
    )
