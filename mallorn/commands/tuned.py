"""Waiting for the last round of a job whose trials are wanted, and not its schedules."""

import time
from typing import Final

from mallorn.core.errors import MallornError
from mallorn.core.states import JobState
from mallorn.job import Job

POLL_SEC: Final = 0.5
OPEN: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING)


class NotTuned(MallornError):
    """A job whose trials are wanted did not get through its budget."""


def wait_until_tuned(job: Job, hint: str) -> None:
    """Return when the last round is closed; the finish is cancelled. Raises NotTuned with the hint."""
    while job.state in OPEN:
        time.sleep(POLL_SEC)
    if job.body["state"] == JobState.FINISHING:
        job.cancel()
    elif job.body["state"] != JobState.DONE:
        raise NotTuned(f"job {job.id} was {job.body['state']}: {job.body['reason']}", hint=hint)
