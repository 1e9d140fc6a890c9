"""Repeats messages that the broker may have lost: redundant ones are harmless, as claims are conditional."""

from db.repositories.jobs import Jobs
from db.repositories.rounds import Rounds
from db.repositories.stages import Stages
from db.session import Database
from mallorn.core import queues
from mallorn.core.states import JobState
from services.control.planning import Message

# Longer than a healthy queue leaves a round waiting, shorter than anyone waits patiently.
STALE_SEC = 20.0
STAGE_TASK = {
    JobState.QUEUED: queues.IMPORT_MODEL,
    JobState.IMPORTING: queues.IMPORT_MODEL,
    JobState.FINISHING: queues.FINISH_JOB,
}


def sweep(database: Database) -> list[Message]:
    """Messages for what waits: stages nobody holds, rounds queued for long, jobs that may need a plan."""
    with database.transaction() as session:
        Rounds(session).withdraw()
        stages = Stages(session).waiting_stages(STALE_SEC)
        Stages(session).mark_sent([job.id for job in stages])
        rounds = Rounds(session).stale(STALE_SEC)
        Rounds(session).mark_sent([row.id for row in rounds])
        tuning = [job.id for job in Jobs(session).active() if job.state == JobState.TUNING]
        return [
            *((STAGE_TASK[JobState(job.state)], job.id) for job in stages),
            *((queues.RUN_ROUND, row.id) for row in rounds),
            *((queues.PLAN, job_id) for job_id in tuning),
        ]
