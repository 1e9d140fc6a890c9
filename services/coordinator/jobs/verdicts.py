"""The verdict on a job, and what is to come, from its rows."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from db.repositories.events import Events
from db.repositories.progress import Progress
from db.tables import Job
from mallorn.core.states import SEARCH, JobState
from mallorn.core.values.event import FinishingEvent, RoundPlannedEvent
from mallorn.core.values.outlook import Outlook
from mallorn.core.values.report import FinishReport
from mallorn.core.values.verdict import Verdict
from mallorn.results.verdict import JobFacts, judge


def verdict_of(job: Job, progress: Progress) -> Verdict:
    """How well a job did and what to type next."""
    facts = JobFacts(
        job_id=job.id,
        name=job.name,
        state=JobState(job.state),
        reason=job.reason,
        trials=progress.spent,
        mode=job.options.get("mode", SEARCH),
        report=job.report or FinishReport(),
        warnings=job.warnings,
    )
    return judge(facts)


def outlooks_of(session: Session, jobs: Sequence[Job]) -> dict[str, Outlook | None]:
    """By job what the planner expected at its last decision; a finish keeps it in its report."""
    state = {job.id: JobState(job.state) for job in jobs}
    events, done = Events(session), [job for job in jobs if job.state == JobState.DONE]
    ending = [job_id for job_id, where in state.items() if where is JobState.FINISHING]
    others = [job_id for job_id, where in state.items() if where not in (JobState.DONE, JobState.FINISHING)]
    return {
        **{job.id: job.report.outlook for job in done if job.report is not None},
        **{job_id: event.outlook for job_id, event in events.newest_of(ending, FinishingEvent).items()},
        **{job_id: event.outlook for job_id, event in events.newest_of(others, RoundPlannedEvent).items()},
    }
