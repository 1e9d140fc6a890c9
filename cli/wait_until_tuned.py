"""Waits, with a progress bar, for a job's last round, for commands that need only its trials."""

import time
from typing import Final

from cli.terminal.progress_bars import bar
from mallorn.core.errors import MallornError
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState
from mallorn.job import Job

POLL_SEC: Final = 0.5
#: The first samples the whole search space, the second its fast candidates.
SEARCHERS: Final = ("random", str(JobOptions.model_fields["search"].default))
OPEN: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING)


class NotTuned(MallornError):
    """A job whose trials are wanted did not get through its budget."""


def wait_until_tuned(job: Job, hint: str) -> None:
    """Wait until the last round is closed, then cancel the finish. Raises NotTuned with the hint."""
    with bar(f"job {job.id}") as advance:
        while job.state in OPEN:
            status = job.status
            if status.progress.tasks:
                task_budget, budget = status.options.task_trials, status.trials or 0
                # With a budget for each task, the job's own budget may be far above their sum.
                total = budget if task_budget is None else min(budget, task_budget * status.progress.tasks)
                advance(status.progress.trials, total)
            time.sleep(POLL_SEC)
    if job.status.state is JobState.FINISHING:
        job.cancel()
    elif job.status.state is not JobState.DONE:
        raise NotTuned(f"job {job.id} was {job.status.state}: {job.status.reason}", hint=hint)
