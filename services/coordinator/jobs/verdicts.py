"""The verdict on a job, and what is to come, from its rows."""

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


def outlook_of(session: Session, job: Job) -> Outlook | None:
    """What the planner expected at its last decision; a finish keeps it in its report."""
    if job.state == JobState.DONE:
        return None if job.report is None else job.report.outlook
    events = Events(session)
    if job.state == JobState.FINISHING:
        ended = events.newest(job.id, FinishingEvent)
        return None if ended is None else ended.outlook
    planned = events.newest(job.id, RoundPlannedEvent)
    return None if planned is None else planned.outlook
