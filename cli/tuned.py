"""Waiting, with a bar, for the last round of a job whose trials are wanted, and not its schedules."""

import time
from typing import Any, Final

from cli.terminal.bars import bar
from mallorn.core.errors import MallornError
from mallorn.core.states import JobState
from mallorn.job import Job

POLL_SEC: Final = 0.5
OPEN: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING)


class NotTuned(MallornError):
    """A job whose trials are wanted did not get through its budget."""


def wait_until_tuned(job: Job, hint: str) -> None:
    """Return when the last round is closed; the finish is cancelled. Raises NotTuned with the hint."""
    with bar(f"job {job.id}") as advance:
        while job.state in OPEN:
            if job.body["progress"]["tasks"]:
                advance(job.body["progress"]["trials"], _most_trials(job.body))
            time.sleep(POLL_SEC)
    if job.body["state"] == JobState.FINISHING:
        job.cancel()
    elif job.body["state"] != JobState.DONE:
        raise NotTuned(f"job {job.id} was {job.body['state']}: {job.body['reason']}", hint=hint)


def _most_trials(body: dict[str, Any]) -> int:
    """Where every task has a budget of its own, the job's may be far above what they come to."""
    of_each = body["options"].get("task_trials")
    budget = int(body["trials"])
    return budget if of_each is None else min(budget, of_each * body["progress"]["tasks"])
