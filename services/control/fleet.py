"""What a target has to tune with, and who wants it."""

from dataclasses import dataclass

from sqlalchemy.orm import Session

from db.repositories.devices import Devices
from db.repositories.rounds import Rounds
from db.repositories.shares import Shares
from db.repositories.targets import Targets
from db.repositories.workers import Workers
from db.tables import Device, Worker
from mallorn.core.stand_ins import stand_in
from mallorn.core.targets import Target
from services.planner.share import JobShare

FRESH_SEC = 30.0  # a device or worker silent for longer is not counted on


@dataclass(frozen=True, slots=True)
class Survey:
    """A target at the moment of planning; `able` are the jobs that have a task to open a round for.

    Where something stands in for devices, every worker has one.
    """

    devices: tuple[Device, ...]
    free_slots: int
    jobs: tuple[JobShare, ...]
    able: frozenset[str]


def survey(session: Session, target_id: int) -> Survey:
    """Read it all; what this costs does not grow with the rounds and measurements of the jobs."""
    fresh = Devices(session).list(FRESH_SEC, target_id=target_id)
    devices = [device for device in fresh if not device.info.stopped]
    claims = Shares(session).claims(target_id)
    workers = sum(tunes(worker) for worker in Workers(session).list(FRESH_SEC))
    stands_in = stand_in(Target(Targets(session).get(target_id).text))
    slots = _slots(workers if stands_in else len(devices), workers)
    return Survey(
        devices=tuple(devices),
        free_slots=max(0, slots - Rounds(session).count_open(target_id)),
        jobs=tuple(JobShare(c.id, c.owner, c.priority, c.share_pass, c.owner_pass) for c in claims),
        able=frozenset(claim.id for claim in claims if claim.able),
    )


def tunes(worker: Worker) -> bool:
    """Whether a worker runs rounds: it has not said good-bye, and does not import alone."""
    return worker.info.tunes and not worker.info.stopped


def _slots(devices: int, workers: int) -> int:
    """A round for every device that a worker can serve, and one more, so that none waits for the planner."""
    if not devices:
        return 0
    return max(1, min(devices, workers)) + 1
