"""Converts database rows of jobs and tasks to API values, with forecasts and verdicts."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.job_options import KeptOptions
from mallorn.core.states import JobState, TaskState
from mallorn.core.values.event import FinishingEvent, RoundPlannedEvent
from mallorn.core.values.expected_gain import Outlook
from mallorn.core.values.job import JobProgress, JobStatus, TaskStatus
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.job_progress import Progress, progress_of
from mallorn.db.repositories.jobs import JobLabels
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import TaskSummary
from mallorn.db.tables import Job
from mallorn.results.judge_job import judge_job

PUBLIC: Final = {"id", "owner", "target", "trials", "minutes", "priority", "state"} | {
    f"{moment}_at" for moment in ("created", "started", "finished")
}


def outlooks_of(session: Session, jobs: Sequence[Job]) -> dict[str, Outlook | None]:
    """Return, by job id, the planner's newest forecast of what further trials would gain."""
    reports = [(job.id, job.report) for job in jobs if job.state == JobState.DONE]
    finishing_ids = [job.id for job in jobs if job.state == JobState.FINISHING]
    other_ids = [job.id for job in jobs if job.state not in (JobState.DONE, JobState.FINISHING)]
    ends = Events(session).find_newest_by_job(finishing_ids, FinishingEvent)
    plans = Events(session).find_newest_by_job(other_ids, RoundPlannedEvent)
    return {
        **{job_id: report.outlook for job_id, report in reports if report is not None},
        **{job_id: event.outlook for job_id, event in ends.items()},
        **{job_id: event.outlook for job_id, event in plans.items()},
    }


def job_out(session: Session, job: Job) -> JobStatus:
    return jobs_out(session, [job])[0]


def jobs_out(session: Session, jobs: Sequence[Job]) -> list[JobStatus]:
    """Return jobs as API values; it needs the same few queries for any number of jobs."""
    targets = Targets(session).texts(job.target_id for job in jobs)
    progress, outlooks = progress_of(session, jobs), outlooks_of(session, jobs)
    labels = JobLabels(session).by_job([job.id for job in jobs])
    statuses = [
        JobStatus.from_row(
            job,
            target=targets[job.target_id],
            labels=labels[job.id],
            progress=progress_out(job, progress[job.id]),
            suggest=job.suggest if job.state == JobState.FAILED else None,
            outlook=outlooks.get(job.id),
            verdict=None,
            device_use=None,
            exported=job.export_uri is not None and job.export_deleted_at is None,
            archived=job.archived_at is not None,
        )
        for job in jobs
    ]
    return [status.model_copy(update={"verdict": judge_job(status)}) for status in statuses]


def hide_private_results(owner: str, job: JobStatus) -> JobStatus:
    """Return a job as `owner` sees it; other owners' private jobs lose name and results."""
    if job.owner == owner or not job.options.private:
        return job
    progress = JobProgress(trials=job.progress.trials, open_candidates=job.progress.open_candidates)
    options = KeptOptions(private=job.options.private)
    return JobStatus(**job.model_dump(include=PUBLIC), name="private", options=options, progress=progress)


def progress_out(job: Job, progress: Progress) -> JobProgress:
    """Return step, trials, failures and, for a model with one shape, the estimated latency."""
    best_us, weights = progress.best_us, progress.weights
    # Tasks that the first pass left out are too small to matter. A task whose first time is
    # still awaited is not: the sum without it would increase later.
    first_pass_over = progress.steered and not progress.awaited
    complete = bool(best_us) and (first_pass_over or len(best_us) == len(weights))
    return JobProgress.from_row(
        progress,
        step=job.step,
        trials=progress.spent,
        tasks=len(weights),
        tasks_measured=len(best_us),
        estimated_us=sum(best_us.get(task, 0.0) * weight for task, weight in weights.items())
        if complete and not (job.graph and job.graph.dynamic)
        else None,
    )


def task_out(task: TaskSummary, job_state: JobState, stock_us: float | None) -> TaskStatus:
    """Return a task as a row of a table like the one that MetaSchedule prints."""
    best_us = task.best_us
    if task.in_flight:
        state = TaskState.MEASURING
    elif job_state.is_final:
        state = TaskState.DONE
    else:
        state = TaskState.RETIRED if task.retired else TaskState.WAITING
    return TaskStatus.from_row(
        task,
        gflops=task.flops / best_us / 1e3 if best_us else None,
        latency_us=best_us,
        weighted_latency_us=best_us * task.weight if best_us is not None else None,
        stock_us=stock_us,
        state=state,
        reason=task.retired,
        workload=task.workload_key,
    )
