"""Waiting for a device, and for a job's trials with a progress bar."""

import time
from typing import Final

from mallorn.cli.terminal.progress_bars import bar
from mallorn.client.job import Job
from mallorn.client.local_service import Connected
from mallorn.core.errors import JobFailed, NoDevice
from mallorn.core.job_options import JobOptions
from mallorn.core.states import JobState

POLL_SEC: Final = 0.5
DEVICE_TIMEOUT_SEC: Final = 180.0
#: The first samples the whole search space, the second its fast candidates.
SEARCHERS: Final = ("random", str(JobOptions.model_fields["search"].default))
OPEN: Final = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING)


class NotTuned(JobFailed):
    """A job ended before it spent its budget of trials."""


def wait_for_device(stack: Connected) -> None:
    """Wait until a local service has a device online. Raises NoDevice if none comes."""
    deadline = time.monotonic() + DEVICE_TIMEOUT_SEC
    while stack.data is not None and not any(device.online for device in stack.api.devices()):
        if time.monotonic() > deadline:
            raise NoDevice("no device is online", hint=f"less {stack.data.logs / 'device.log'}")
        time.sleep(POLL_SEC)


def wait_until_tuned(job: Job, hint: str, poll_sec: float = POLL_SEC) -> None:
    """Wait for all trials; cancel the job's last stage. Raises NotTuned if cut short."""
    with bar(f"job {job.id}") as advance:
        while job.state in OPEN:
            status = job.status
            if status.progress.tasks:
                task_budget, budget = status.options.task_trials, status.trials or 0
                # With a budget for each task, the job's own budget may be far above their sum.
                total = budget if task_budget is None else min(budget, task_budget * status.progress.tasks)
                advance(status.progress.trials, total)
            time.sleep(poll_sec)
    if job.status.state is JobState.FINISHING:
        job.cancel()
    elif job.status.state is not JobState.DONE:
        raise NotTuned(f"job {job.id} was {job.status.state}: {job.status.explanation}", hint=hint)
