"""What becomes of a round and of a finish that an error ends: how often they are tried, and how they end."""

import errno
import os
from functools import partial
from typing import NamedTuple

import pytest

from mallorn.core.errors import (
    Conflict,
    HostFault,
    InvalidModel,
    NoDevice,
    PluginFailed,
    StorageFull,
    StoreAway,
    UnknownName,
    Unschedulable,
)
from mallorn.core.states import JobState, RoundState, WorkKind
from mallorn.db.repositories.leases import WorkItem
from mallorn.workers.subprocesses.errors import (
    ChildCrashed,
    ChildFailed,
    ChildKilled,
    ChildOutOfMemory,
    ChildTimeout,
)
from mallorn.workers.subprocesses.shutdown import ShutdownRequested
from tests.fixtures.tuned_jobs import tuned
from tests.fixtures.work import finish

OFTEN = 4


class End(NamedTuple):
    """At which attempt work ends, and the states of round and job then; 0: at none of a few."""

    attempt: int
    round: str = RoundState.CANCELLED
    job: str = JobState.FAILED


NEVER = End(0, RoundState.QUEUED, JobState.TUNING)
AT_ONCE = End(1)
OF_THREE = End(3)
# Of a round that is given up others of its job go on.
POISON_AT_ONCE = End(1, RoundState.POISON, JobState.TUNING)
POISON_OF_THREE = End(3, RoundState.POISON, JobState.TUNING)
ERRORS = {
    "a stopping worker": (ShutdownRequested, NEVER, NEVER),
    "no device": (NoDevice, NEVER, NEVER),
    "a full disk": (StorageFull, NEVER, NEVER),
    "a store that is away": (StoreAway, NEVER, NEVER),
    "a name that another version knows": (UnknownName, NEVER, NEVER),
    "a helper that others killed": (partial(ChildKilled, "it was killed"), NEVER, NEVER),
    "the host, of which there is one": (HostFault, End(3, job=JobState.PAUSED), NEVER),
    "a helper that crashes": (partial(ChildCrashed, "it died"), POISON_OF_THREE, OF_THREE),
    "a helper that wants memory": (partial(ChildOutOfMemory, "too much"), POISON_OF_THREE, OF_THREE),
    "a helper that hangs": (ChildTimeout, POISON_OF_THREE, OF_THREE),
    "a helper that raises": (partial(ChildFailed, "ValueError", "no"), POISON_OF_THREE, AT_ONCE),
    "what proposes": (partial(PluginFailed, seam="search"), POISON_OF_THREE, AT_ONCE),
    **{
        f"a {seam} of a user's own": (partial(PluginFailed, seam=seam), AT_ONCE, AT_ONCE)
        for seam in ("stopping", "measurer", "policy", "families")
    },
    "what TVM refuses": (Unschedulable, POISON_AT_ONCE, AT_ONCE),
    "a bad model": (InvalidModel, AT_ONCE, AT_ONCE),
    "a conflict": (Conflict, AT_ONCE, AT_ONCE),
}
ROUNDS = {name: (error, end) for name, (error, end, _) in ERRORS.items()}
FINISHES = {name: (error, end) for name, (error, _, end) in ERRORS.items()}


@pytest.mark.parametrize(("error", "end"), ROUNDS.values(), ids=ROUNDS)
def test_a_round_that_an_error_ends(workshop, error, end):
    job = workshop.job(("w0",), trials=8)
    number = workshop.next_round(job)
    for attempt in range(1, OFTEN + 1):
        workshop.maker.error = error()
        workshop.run(number)
        over = 0 < end.attempt <= attempt
        expected = (end.round, end.job) if over else (RoundState.QUEUED, JobState.TUNING)
        assert (workshop.round(number).state, workshop.state(job)) == expected, attempt
        assert workshop.held(WorkItem(WorkKind.ROUND, number)).holder is None


@pytest.mark.parametrize(("error", "end"), FINISHES.values(), ids=FINISHES)
def test_a_finish_that_an_error_ends(workshop, exported, error, end):
    job = tuned(workshop, ("w0",))

    def fail(**_params):
        raise error()

    workshop.graph_answers["write_database"] = fail
    for attempt in range(1, OFTEN + 1):
        finish(workshop, job)
        over = 0 < end.attempt <= attempt
        assert workshop.state(job) == (end.job if over else JobState.FINISHING), attempt
        assert workshop.held(WorkItem(WorkKind.FINISH, job)).holder is None


@pytest.mark.parametrize(("error", "told"), [(ShutdownRequested, False), (NoDevice, True)])
def test_a_job_hears_of_what_it_waits_for_and_not_of_a_stopping_worker(workshop, error, told):
    job = workshop.job(("w0",), trials=8)
    workshop.maker.error = error()
    workshop.run(workshop.next_round(job))
    assert bool(workshop.explanation(job)) is told


def test_a_worker_that_cannot_read_its_own_code_gives_the_work_back_and_says_why(workshop, monkeypatch):
    def without_handles() -> bool:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "graphc")

    job = workshop.job(("w0",), trials=8)
    number = workshop.next_round(job)
    monkeypatch.setattr("mallorn.workers.process.leased_work.have_sources_changed", without_handles)
    workshop.run(number)
    assert (workshop.round(number).state, workshop.state(job)) == (RoundState.QUEUED, JobState.TUNING)
    assert "cannot open graphc: too many open files" in workshop.explanation(job)
    assert workshop.health.is_resting
