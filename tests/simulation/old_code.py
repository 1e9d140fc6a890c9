"""Code as it was before a year's mishaps were thought of: each is a bug to plant into what mended it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import and_

from mallorn.core.artifact_uris import open_store
from mallorn.core.errors import MallornError
from mallorn.core.job_options import JobOptions
from mallorn.core.states import RoundState, Waiting, WorkKind
from mallorn.core.values.fleet import DeviceInfo
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.job_transitions import pause_job
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_LOSSES, Leases, LeaseToken
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import LeaseRow
from mallorn.services.control import plan_target
from mallorn.services.control.plan_job import plan_job
from mallorn.services.planner.fair_share import charge_job
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.process.heartbeat import Heartbeat
from mallorn.workers.process.retry_rules import OTHER_HOST, RetryRule, retry_rule_for
from mallorn.workers.process.worker_health import Health

EXPIRES_SEC: Final = 5.0


def ticks_expire() -> AbstractContextManager[object]:
    """A tick is worth nothing after five seconds, by the wall clock of whoever takes it."""
    return patch("tests.simulation.parts.EXPIRES_SEC", EXPIRES_SEC)


def read_only_is_a_fault() -> AbstractContextManager[object]:
    """A Postgres that was a standby a moment ago is not taken for one that is away."""
    return patch("tests.simulation.storage.NOTICED", new=False)


@contextmanager
def store_is_a_fault() -> Iterator[None]:
    """What an artifact store raises that is away is a fault of ours."""
    with ExitStack() as stack:
        for module in (
            "mallorn.workers.process.leased_work",
            "mallorn.workers.finish.export_directory",
            "mallorn.workers.finish.build_final_schedules",
        ):
            stack.enter_context(patch(f"{module}.open_artifact", lambda uri: nullcontext(open_store(uri))))
        yield


def turns_unguarded() -> AbstractContextManager[object]:
    """One job's turn that raises ends the planning step of its target."""

    def plan_one(self: Any, job_id: str, max_new_rounds: int) -> None:
        with self._database.transaction() as session:
            turn = plan_job(session, job_id, max_new_rounds, self._devices, self._patience)
            paid = charge_job([*self._jobs.values()], job_id, turn.candidates)
            wants_rounds = turn.opened >= max_new_rounds
            FairShares(session).take_turn(job_id, paid.share_pass, paid.owner_pass, wants_rounds)
        self._jobs[job_id] = paid
        self._messages += turn.messages
        self._free -= turn.opened
        if turn.over:
            del self._jobs[job_id]
        if turn.opened < max_new_rounds:
            self._able.discard(job_id)

    return patch.object(plan_target._TargetStep, "_plan_one", plan_one)


@contextmanager
def options_read_strictly() -> Iterator[None]:
    """An option that only a newer version knows raises in whoever reads it."""
    with ExitStack() as stack:
        for module in (
            "mallorn.services.control.plan_job",
            "mallorn.workers.process.leased_work",
            "mallorn.workers.round.loaded_round",
        ):
            stack.enter_context(patch(f"{module}.KeptOptions", JobOptions))
        yield


@contextmanager
def devices_believed() -> Iterator[None]:
    """What a device says of itself is taken as it is, and the roll call ends where that raises."""
    with ExitStack() as stack:
        for module in ("mallorn.workers.measure.tracked_devices", "tests.simulation.benches"):
            stack.enter_context(patch(f"{module}.endpoint_of", _endpoint_of))
        stack.enter_context(patch.object(Heartbeat, "_attempt", staticmethod(_tell)))
        yield


def _endpoint_of(identity: Any) -> Endpoint:
    return Endpoint(
        name=str(identity["name"]),
        host_id=str(identity["host_id"]),
        host_class=str(identity["host_class"]),
        threads=int(identity["threads"]),
        tvm_version=str(identity["tvm_version"]),
        info=DeviceInfo.model_validate(identity),
    )


def _tell(report: Any) -> str:
    try:
        report()
    except MallornError as error:
        return error.headline
    return ""


def fenced_by_number() -> AbstractContextManager[object]:
    """A claim is its number, which comes again after a restore."""

    def mine(hold: LeaseToken) -> Any:
        item = hold.item
        same = LeaseRow.kind == item.kind, LeaseRow.subject == item.subject
        return and_(*same, LeaseRow.attempt == hold.attempt, LeaseRow.until.is_not(None))

    return patch("mallorn.db.repositories.leases.is_row_held_by", mine)


@contextmanager
def host_faults_are_losses() -> Iterator[None]:
    """Three times the same sick host are three hosts, and it goes on taking work."""

    def leave(self: WorkItems, hold: LeaseToken, error: MallornError) -> None:
        if hold.item.kind is not WorkKind.ROUND:
            self.return_work(hold, error)
        elif Leases(self.session).get(hold.item).losses + 1 >= MAX_LOSSES:
            if Rounds(self.session).close(hold, RoundState.CANCELLED, error=error.message):
                pause_job(self.session, self._job_of(hold), error)
        elif self.record_interruption(hold, error) is not None:
            Jobs(self.session).set_waiting(self._job_of(hold), Waiting(error.message, error.hint))

    def fate(error: MallornError, kind: WorkKind) -> RetryRule:
        found = retry_rule_for(error, kind)
        return replace(found, act=leave) if found is OTHER_HOST else found

    with ExitStack() as stack:
        stack.enter_context(patch.object(Health, "pause_until_healthy", lambda _self: None))
        stack.enter_context(patch.object(Health, "is_resting", new=False))
        stack.enter_context(patch("mallorn.workers.process.leased_work.retry_rule_for", fate))
        yield


def any_device_times() -> AbstractContextManager[object]:
    """Devices are asked for by their target alone, whatever class a job's times are of."""
    return patch("mallorn.workers.round.loaded_round.class_of", lambda *_: None)
