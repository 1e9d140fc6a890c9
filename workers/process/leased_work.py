"""Leased work: claims a round or stage, renews its lease and releases it at the end."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socket import gethostname
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.check_plugin_classes import check_allowed_classes, check_base_classes
from mallorn.core.errors import ClassRefused, HostFault, MallornError, StorageFull, Unavailable, UnknownName
from mallorn.core.job_options import KeptOptions
from mallorn.core.log_setup import add_log_facts, log_facts
from mallorn.core.os_errors import explain_os_error
from mallorn.core.states import Waiting, WorkKind
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.jobs import STATES, Jobs
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem
from mallorn.workers.host.code_digest import have_sources_changed
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.process.retry_rules import PROPOSING, retry_rule_for
from mallorn.workers.process.worker_runtime import Runtime
from mallorn.workers.subprocesses.errors import ChildError, suggest_next_step
from mallorn.workers.subprocesses.shutdown import STOP

MEASURED: Final = (WorkKind.ROUND, WorkKind.FINISH)
DETACHED: Final = "the device is detached: batch files carry candidates there"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeasedWork:
    """A round or a stage whose lease this worker holds."""

    runtime: Runtime
    hold: LeaseToken
    job_id: str
    lease: LeaseKeeper

    @property
    def work_name(self) -> str:
        return STATES.get(self.hold.item.kind, "the round")


Begin = Callable[[Session, LeaseToken], None]


@contextmanager
def leased_work(runtime: Runtime, item: WorkItem, begin: Begin | None = None) -> Iterator[LeasedWork | None]:
    """Hold a lease on `item` for the block; yield None if it cannot be claimed or run.

    `begin` runs in the transaction of the claim. If the block raises, `retry_rules` decides
    whether the work is retried, returned to the queue or given up.
    """
    if have_sources_changed():
        STOP.stop_for_replaced_code()
    with log_facts():  # `_claim` adds facts of this work only
        work = None if STOP.requested.is_set() else _claim(runtime, item, begin)
        if work is None:
            yield None
            return
        try:
            with work.lease:
                yield work
        except MallornError as error:
            _release(work, error)
        except Exception as error:
            if (host_error := explain_os_error(error)) is not None:
                _release(work, host_error)
                return
            # A bug in Mallorn: the lease expires, and the work is retried a few times.
            words = f"{type(error).__name__} in {work.work_name}: {error}"
            with runtime.database.transaction() as session:
                Jobs(session).set_waiting(work.job_id, Waiting(f"{words}; the worker's log has the details"))
            raise


def _claim(runtime: Runtime, item: WorkItem, begin: Begin | None) -> LeasedWork | None:
    lease_sec = runtime.settings.lease_sec
    with runtime.database.transaction() as session:
        hold = WorkItems(session).claim(item, runtime.name, lease_sec)
        if hold is None:
            return None
        job_id = Leases(session).get(hold.item).job_id or ""
        options = KeptOptions.model_validate(Jobs(session).get(job_id, None).options)
        add_log_facts(job=job_id, attempt=hold.attempt)
        if begin is not None:
            begin(session, hold)

    def renew() -> bool:
        with runtime.database.transaction() as session:
            return Leases(session).renew(hold, lease_sec)

    work = LeasedWork(runtime, hold, job_id, LeaseKeeper(renew, lease_sec))
    try:
        options.check_all_readable()
        check_allowed_classes(options, runtime.settings.plugins)
        check_base_classes(options, PROPOSING)
        if options.is_detached and hold.item.kind in MEASURED and not runtime.carries_batches:
            raise Unavailable(DETACHED, hint=f"mallorn batch next {job_id} -o FILE")
    except (ClassRefused, UnknownName, Unavailable) as error:
        _release(work, error)
        return None
    return work


def _release(work: LeasedWork, error: MallornError) -> None:
    if isinstance(error, ChildError):
        error.hint = suggest_next_step(error, work.runtime.settings)
    if isinstance(error, (HostFault, StorageFull)):
        error.message = f"on {gethostname()}: {error.message}"
        work.runtime.health.record_fault(error)
    rule = retry_rule_for(error, work.hold.item.kind)
    log.log(rule.level, "%s %s: %s", work.work_name, rule.words, error)
    if rule.act is not None:
        with work.runtime.database.transaction() as session:
            rule.act(WorkItems(session), work.hold, error)
