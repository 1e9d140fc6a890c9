"""Plans the jobs of a target: first the job that has news, then others by fair share.

A survey lists the target's devices, its tuning jobs, and how many more rounds may be open.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import MallornError, MissingPackage, StorageFull, Unavailable
from mallorn.core.log_setup import Turn, log_facts, log_survived_error
from mallorn.core.os_errors import explain_os_error
from mallorn.core.queues import Message
from mallorn.core.states import Waiting
from mallorn.core.targets import Target
from mallorn.db.repositories.devices import Devices
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_transitions import pause_job
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, WorkItem
from mallorn.db.repositories.workers import Workers
from mallorn.db.session import Database
from mallorn.db.tables import Device, Worker
from mallorn.services.control.plan_job import draft_plan, plan_job, settle_rounds
from mallorn.services.control.wait_for_device import USUAL, WaitLimit
from mallorn.services.planner.fair_share import JobShare, charge_job, distribute_rounds

log = logging.getLogger(__name__)
MOST_NAMED: Final = 5
NEAR: Final = " that reaches a device of the target"
FRESH_SEC = 30.0  # a device that was silent for longer counts as offline
PLAN_LEASE_SEC = 20.0
DEVICES_PER_SPARE = 4  # a further round is prepared for so many while they measure


@dataclass(frozen=True, slots=True)
class TargetSurvey:
    """Devices and tuning jobs of a target, and how many more rounds may be open for it.

    Jobs in `able` can open another round, those in `wanting` perhaps further ones. If the
    target names a virtual device, every worker counts as a device. `lack` says what the
    workers lack if none can build for it.
    """

    devices: tuple[Device, ...]
    lack: Waiting | None
    max_new_rounds: int
    jobs: tuple[JobShare, ...]
    able: frozenset[str]
    wanting: frozenset[str]


def survey(session: Session, target_id: int, target: Target) -> TargetSurvey:
    """Return a target's devices and jobs; its cost does not depend on past rounds."""
    fresh = Devices(session).list(FRESH_SEC, target_id=target_id)
    devices = [device for device in fresh if not device.info.stopped]
    claims, open_rounds = FairShares(session).claims(target_id)
    workers = Workers(session).list_tuning()
    try:
        hardware, toolchain = target.measured_by, target.toolchain
    except MissingPackage:  # `plan_job` tells each job
        hardware, toolchain = None, ""
    able = [row for row in workers if not row.info.missing_tools.get(toolchain)]
    lack = None if able else explain_lack(workers, toolchain)
    if not target.virtual_device:
        near = [row for row in workers if target.key in (row.info.device_targets or ())]
        able = [row for row in able if row in near or row.info.device_targets is None]
        if lack is None and not able:
            lack = explain_lack(near, toolchain, NEAR)
    width = sum(row.info.width for row in able)
    # A round for each device with a worker, or several, and spare ones.
    places = width if hardware is None else len(devices) * hardware.rounds_per_device
    busy = max(1, min(places, width))
    max_open_rounds = busy + ceil(busy / DEVICES_PER_SPARE) if places else 0
    return TargetSurvey(
        devices=tuple(devices),
        lack=lack,
        max_new_rounds=max(0, max_open_rounds - open_rounds),
        jobs=tuple(JobShare(c.id, c.owner, c.priority, c.share_pass, c.owner_pass) for c in claims),
        able=frozenset(claim.id for claim in claims if claim.able),
        wanting=frozenset(claim.id for claim in claims if claim.wants_rounds),
    )


def explain_lack(workers: Sequence[Worker], toolchain: str, where: str = "") -> Waiting | None:
    """Return what each worker lacks to build with a toolchain; None if there are none."""
    missing = [f"{row.id} lacks {row.info.missing_tools.get(toolchain)}" for row in workers[:MOST_NAMED]]
    more = [f"and {len(workers) - MOST_NAMED} more"] if len(workers) > MOST_NAMED else []
    words = f"no worker{where} can build for {toolchain}: {', '.join(missing + more)}"
    return Waiting(words, "mallorn workers") if workers else None


def plan_target(
    database: Database, job_id: str, holder: str, wait_limit: WaitLimit = USUAL
) -> list[Message] | None:
    """Plan all jobs of a job's target; return messages, or None if another process does."""
    with database.transaction() as session:
        planned = FairShares(session).job_to_plan(job_id)
        hold = Leases(session).claim(WorkItem.for_planning(planned.job.target_id), holder, PLAN_LEASE_SEC)
    if hold is None:
        return None
    try:
        with database.session() as session:
            target_survey = survey(session, planned.job.target_id, planned.target)
        return _TargetStep(database, target_survey, wait_limit).plan_jobs(job_id)
    finally:
        with suppress(Unavailable, StorageFull), database.transaction() as session:
            Leases(session).end(hold)


class _TargetStep:
    """Plans a target's jobs one at a time, each in its own transaction that locks the job.

    A lease on the target avoids duplicate work, but only the locks on jobs keep two
    planners from spending a job's budget twice.
    """

    def __init__(self, database: Database, target_survey: TargetSurvey, patience: WaitLimit) -> None:
        self._database = database
        self._patience = patience
        self._devices, self._lack = target_survey.devices, target_survey.lack
        self._free = 0 if self._lack else target_survey.max_new_rounds
        self._jobs = {job.id: job for job in target_survey.jobs}
        self._able, self._wanting = set(target_survey.able), set(target_survey.wanting)
        self._messages: list[Message] = []

    def plan_jobs(self, first: str) -> list[Message]:
        """Plan the job `first`, then others by fair share until no round may be added."""
        try:
            if first in self._jobs:
                others = set() if first in self._able else {first, *self._wanting}
                counts = distribute_rounds(self._jobs.values(), self._able | others, self._free)
                self._plan_one(first, counts.get(first, 0))
            for able in (self._able, self._wanting):
                while counts := distribute_rounds(self._jobs.values(), able, self._free):
                    for job_id, count in counts.items():
                        self._plan_one(job_id, count)
        except (Unavailable, StorageFull) as error:  # a sweep plans again
            log.warning("this planning step ended early, the next continues: %s", error)
        return self._messages

    def _plan_one(self, job_id: str, max_new_rounds: int) -> None:
        try:
            draft = draft_plan(self._database, job_id, max_new_rounds)
            with self._database.transaction() as session:
                turn = plan_job(session, job_id, max_new_rounds, self._devices, self._patience, draft=draft)
                if self._lack is not None and not turn.over:
                    Jobs(session).set_waiting(job_id, self._lack)
                share = charge_job([*self._jobs.values()], job_id, turn.candidates)
                wants_rounds = turn.opened >= max_new_rounds
                FairShares(session).take_turn(job_id, share.share_pass, share.owner_pass, wants_rounds)
        except (Unavailable, StorageFull):
            raise
        except Exception as error:  # the turns of other jobs go on
            if (host_error := explain_os_error(error)) is not None:
                raise host_error from error
            del self._jobs[job_id]
            with (
                log_facts(job=job_id),
                Turn().log_part_errors("could not pause a job whose planning raised"),
            ):
                log_survived_error("planning a job raised", error)
                words = f"planning this job raised {type(error).__name__}: {error}"
                with self._database.transaction() as session:
                    pause_job(session, job_id, MallornError(words, hint="see the log of control"))
            return
        self._jobs[job_id] = share
        self._messages += turn.messages
        self._free -= turn.opened
        if turn.over:
            del self._jobs[job_id]
        if turn.opened < max_new_rounds:
            self._able.discard(job_id)
            self._wanting.discard(job_id)
        if turn.unsettled is not None:
            settle_rounds(self._database, turn.unsettled)
