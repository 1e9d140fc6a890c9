"""Bugs to plant into the product, one of each class that the laws are about."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import and_, true, update

from mallorn.core.errors import Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.db.repositories.base import seconds_from_now
from mallorn.db.repositories.leases import Leases, LeaseToken, is_still_held
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.tables import LeaseRow, Round
from mallorn.services.control.plan_job import job_view
from mallorn.workers.finish.numeric_check import NumericCheck
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.process.lookout import Lookout
from mallorn.workers.round.loaded_round import load_round
from mallorn.workers.round.run import Commits
from tests.simulation import old_code
from tests.simulation.benches import Check


def fencing_off() -> AbstractContextManager[object]:
    """What is held is anybody's, whatever their attempt."""

    def mine(hold: LeaseToken) -> Any:
        item = hold.item
        return and_(LeaseRow.kind == item.kind, LeaseRow.subject == item.subject, LeaseRow.until.is_not(None))

    return patch("mallorn.db.repositories.leases.is_row_held_by", mine)


@contextmanager
def commit_twice() -> Iterator[None]:
    """A batch whose commit was not answered is written once more, into places that are free."""
    flush = Commits.flush

    def twice(self: Commits, is_last: bool = False) -> None:
        pending, most = list(self.pending.values()), max(self._sketches, default=0) + 1
        try:
            flush(self, is_last)
        except Unavailable:
            self._sketches |= {slot + most: each for slot, each in self._sketches.items()}
            self.proposals = [*self.proposals, *self.proposals]
            again = [replace(result, slot=result.slot + most) for result in pending]
            self.pending = {result.slot: result for result in again}
            flush(self, is_last)

    with patch.object(Commits, "flush", twice):
        yield


@contextmanager
def nobody_looks() -> Iterator[None]:
    """Work and news whose message gets lost are never found."""
    with (
        patch("mallorn.services.control.celery_tasks.collect_jobs_to_plan", lambda *_: []),
        patch.object(Lookout, "look", lambda _: None),
    ):
        yield


@contextmanager
def renewals_never_refused() -> Iterator[None]:
    """Whoever renews is told that the work is still theirs; nobody is told that it is not."""
    with patch.object(Leases, "renew", _renewed):
        yield


def _renewed(self: Leases, hold: LeaseToken, lease_sec: float) -> bool:
    item = hold.item
    same = LeaseRow.kind == item.kind, LeaseRow.subject == item.subject
    self.execute_and_count(update(LeaseRow).where(*same).values(until=seconds_from_now(lease_sec)))
    return True


@contextmanager
def budget_off_by_a_round() -> Iterator[None]:
    """The planner believes that there is one round more to spend."""
    view = job_view

    def richer(*given: Any) -> Any:
        found = view(*given)
        return replace(found, trials=(found.trials or 0) + (found.round_size or 0))

    with patch("mallorn.services.control.plan_job.job_view", richer):
        yield


@contextmanager
def unchecked_schedule() -> Iterator[None]:
    """A candidate is taken for checked although its check said no."""
    verify = Check.verify

    def kind(self: Check, program: Program, slot: MeasureInput) -> NumericCheck:
        return replace(verify(self, program, slot), outcome=Outcome.OK)

    with patch.object(Check, "verify", kind):
        yield


def owners_mixed() -> AbstractContextManager[object]:
    """Everybody's jobs are listed to everybody."""
    return patch("mallorn.db.repositories.jobs.is_owned_by", lambda _owner: true())


def private_shown() -> AbstractContextManager[object]:
    """What private jobs brought is exported like anything else."""
    return patch("mallorn.db.repositories.snapshots.is_shared", true)


@contextmanager
def duplicates_unchecked() -> Iterator[None]:
    """A round stores its proposals whoever else has them."""

    def store(self: Rounds, hold: LeaseToken, *_known: Any, **values: Any) -> bool:
        mine = Round.id == int(hold.item.subject), is_still_held(hold)
        return self.execute_and_count(update(Round).where(*mine).values(values)) == 1

    with (
        patch.object(Rounds, "store_proposals", store),
        patch("mallorn.workers.round.propose.find_tried", lambda *_: set()),
        patch.object(Rounds, "lock_in_flight", lambda *_: []),
    ):
        yield


def retries_propose_anew() -> AbstractContextManager[object]:
    """What an earlier attempt stored is not looked at."""

    def load(session: Any, round_id: int, is_new: bool = False) -> Any:
        loaded = load_round(session, round_id, is_new)
        session.expunge(loaded.row)
        loaded.row.proposals = None
        return loaded

    return patch("mallorn.workers.round.propose.load_round", load)


#: By name, with what the law says that finds it.
BUGS: Final[dict[str, tuple[Callable[[], AbstractContextManager[object]], str]]] = {
    "fencing off": (fencing_off, "does not hold"),
    "a commit applied twice": (commit_twice, "counts a candidate twice"),
    "a lost wake-up, and nobody looks": (nobody_looks, "has not ended"),
    "renewals never refused": (renewals_never_refused, "does not hold"),
    "a budget off by a round": (budget_off_by_a_round, "has spent"),
    "the check for duplicates removed": (duplicates_unchecked, "measured one candidate"),
    "a retry that proposes anew": (retries_propose_anew, "stored its proposals"),
    "a schedule promoted without its check": (unchecked_schedule, "without a check"),
    "another owner's jobs listed": (owners_mixed, "sees job"),
    "private rows exported": (private_shown, "private jobs alone"),
    "ticks that expire by another's clock": (old_code.ticks_expire, "by another's clock"),
    "a read-only database taken for a fault": (old_code.read_only_is_a_fault, "cannot be written yet"),
    "a store that is away taken for a fault": (old_code.store_is_a_fault, "store does not answer"),
    "a turn that raises ends everybody's": (old_code.turns_unguarded, "raised: control.plan"),
    "options of a newer version refused": (old_code.options_read_strictly, "Extra inputs"),
    "what devices say believed": (old_code.devices_believed, "fell: roll-call"),
    "claims fenced by their number alone": (old_code.fenced_by_number, "does not hold"),
    "faults of a host taken for losses": (old_code.host_faults_are_losses, "it is paused"),
    "times of any class of device": (old_code.any_device_times, "has trials of"),
}
