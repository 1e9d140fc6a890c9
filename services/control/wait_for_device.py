"""Handles a job that no device can serve: it waits, reports why, and is paused in the end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core import queues
from mallorn.core.device_wait_hint import (
    ServiceAddress,
    describe_changed_device,
    describe_pause,
    describe_waiting,
)
from mallorn.core.settings import Settings
from mallorn.core.states import Cause, JobState, Waiting
from mallorn.core.values.event import PausedEvent
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs, JobsWaitingForDevice
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.session import read_clock
from mallorn.db.tables import Context, Device, Job

_FIELDS: Final = Settings.model_fields


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """Limits how long a job waits for a device; holds the address for new devices."""

    limit_sec: float = _FIELDS["device_wait_sec"].default
    here: ServiceAddress = field(default_factory=lambda: ServiceAddress(_FIELDS["tracker"].default))


USUAL: Final = WaitLimit()


def wait_for_device(session: Session, job: Job, wait_limit: WaitLimit, devices: Sequence[Device]) -> bool:
    """Record that a job waits for a device; if it waited too long, pause it and return True.

    `devices` are live devices of its target whose times are not comparable with the job's.
    """
    target = Targets(session).get(job.target_id).text
    waiting = describe_waiting(target, wait_limit.here)
    if job.context_id is not None and devices:
        context, device = Contexts(session).get(job.context_id), devices[0]
        device_words = f"{_describe(device)}, governor {device.info.governor or 'unknown'}"
        waiting = describe_changed_device(_describe(context), device_words)
        Rounds(session).cancel_queued(job.id)  # pending rounds would not be comparable either
    elif job.cause == Cause.NOT_HERE:  # which is more specific
        waiting = Waiting(job.waiting_because, job.hint, Cause.NOT_HERE)
    # Time during which control was down does not count as waiting.
    waited_sec = read_clock(session) - max(
        LoopTicks(session).running_since(queues.SWEEP), JobsWaitingForDevice(session).waiting_since(job)
    )
    if waited_sec <= wait_limit.limit_sec:
        Jobs(session).set_waiting(job.id, waiting)
        return False
    waiting = describe_pause(job.id, waiting, waited_sec)
    Jobs(session).pause(job.id, None, waiting)
    event = PausedEvent(state=JobState(job.state), trials=job.trials, reason=waiting.waiting_because)
    Events(session).append(job.id, event)
    return True


def _describe(row: Context | Device) -> str:
    return f"{row.host_class} with TVM {row.tvm_version} and {row.threads} threads"
