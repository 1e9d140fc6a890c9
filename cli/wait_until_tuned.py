"""Waiting, with a bar, for the last round of a job whose trials are wanted, and not its schedules."""

import time
from typing import Final

from cli.terminal.progress_bars import bar
from mallorn.core.errors import MallornError
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState
from mallorn.job import Job

POLL_SEC: Final = 0.5
#: The first shows what a space is like, the second what is fast in it.
SEARCHERS: Final = ("random", str(JobOptions.model_fields["search"].default))
OPEN: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING)


class NotTuned(MallornError):
    """A job whose trials are wanted did not get through its budget."""


def wait_until_tuned(job: Job, hint: str) -> None:
    """Return when the last round is closed; the finish is cancelled. Raises NotTuned with the hint."""
    with bar(f"job {job.id}") as advance:
        while job.state in OPEN:
            status = job.status
            if status.progress.tasks:
                of_each, budget = status.options.task_trials, status.trials or 0
                # Where every task has a budget of its own, the job's may be far above what they come to.
                most = budget if of_each is None else min(budget, of_each * status.progress.tasks)
                advance(status.progress.trials, most)
            time.sleep(POLL_SEC)
    if job.status.state is JobState.FINISHING:
        job.cancel()
    elif job.status.state is not JobState.DONE:
        raise NotTuned(f"job {job.id} was {job.status.state}: {job.status.reason}", hint=hint)
