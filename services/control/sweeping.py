"""Repeats messages that the broker may have lost: redundant ones are harmless, as claims are conditional."""

from db.repositories.rounds import Rounds
from db.repositories.shares import Shares
from db.repositories.stages import Stages
from db.session import Database
from mallorn.core import queues
from mallorn.core.finishing import FINISH_SEC, FINISH_SEC_PER_TASK
from mallorn.core.states import JobState
from services.control.messages import Message

# Longer than a healthy queue leaves a round waiting, shorter than anyone waits patiently.
STALE_SEC = 20.0
# A look at a job costs milliseconds: with hundreds of them a sweep takes the next few of every target.
LOOKS_PER_TARGET = 4
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
        due = Shares(session).due(LOOKS_PER_TARGET, FINISH_SEC, FINISH_SEC_PER_TASK)
        return [
            *((STAGE_TASK[JobState(job.state)], job.id) for job in stages),
            *((queues.RUN_ROUND, row.id) for row in rounds),
            *((queues.PLAN, job_id) for job_id in due),
        ]
