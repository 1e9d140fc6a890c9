"""What happens to a job of whose target no device answers: it waits, says so, and is paused in the end."""

import time
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.events import Events
from db.repositories.jobs import Jobs
from db.repositories.targets import Targets
from db.repositories.waiting import Waiting
from db.session import read_clock
from db.tables import Job
from mallorn.core.settings import Settings
from mallorn.core.states import Cause, JobState
from mallorn.core.values.event import PausedEvent
from mallorn.core.waiting import WAITING, Here, paused_words, waiting_words

_FIELDS: Final = Settings.model_fields


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a job waits for a device; `since` is when this process began to look for one."""

    limit_sec: float = _FIELDS["device_wait_sec"].default
    here: Here = field(default_factory=lambda: Here(_FIELDS["tracker"].default))
    since: float = field(default_factory=time.time)


USUAL: Final = Patience()


def wait_for_device(session: Session, job: Job, patience: Patience) -> bool:
    """Tell a job that it waits; True when that took too long, and it is paused instead."""
    target = Targets(session).get(job.target_id).text
    # What happened while nobody looked was no waiting.
    waited_sec = read_clock(session) - max(patience.since, Waiting(session).since(job))
    if waited_sec > patience.limit_sec:
        why = paused_words(job.id, target, patience.here, waited_sec, job.cause_detail)
        cause = Cause.NOT_HERE if job.cause_detail else Cause.NO_DEVICE
        Jobs(session).pause(job.id, None, why, cause, job.cause_detail)
        Events(session).append(job.id, PausedEvent(state=JobState(job.state), trials=job.trials, why=why))
        return True
    # Whoever knows better why there is none has said so in more words.
    if job.cause not in WAITING:
        Jobs(session).say(job.id, waiting_words(target, patience.here), Cause.NO_DEVICE)
    return False
