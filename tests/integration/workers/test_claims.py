"""Which waiting work a worker claims: the best that it can do; and what it leaves to others."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from sqlalchemy import update

from mallorn.core import queues
from mallorn.core.errors import HostFault
from mallorn.core.states import JobState, RoundState, WorkKind
from mallorn.core.targets import NATIVE, parse_target
from mallorn.core.values.fleet import WorkerInfo
from mallorn.db.repositories.claim_and_release_work import LEFT_SEC, WorkItems
from mallorn.db.repositories.devices import MachineKey
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import MAX_LOSSES, LeaseToken, WorkItem
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Context, Job
from mallorn.services.control import plan_target as planning
from mallorn.workers.host.code_digest import current_builder_name
from mallorn.workers.process.lookout import Lookout
from tests.fixtures.database import BACKENDS, BOTH
from tests.fixtures.workshop import Workshop

ANOTHER = frozenset({"another builder"})


@pytest.fixture(autouse=True)
def enough_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job gets the rounds that it asks for."""
    survey = planning.survey
    monkeypatch.setattr(planning, "survey", lambda *target: replace(survey(*target), max_new_rounds=4))


def change(workshop: Workshop, job_id: str, **columns: object) -> None:
    workshop.write(lambda session: session.execute(update(Job).where(Job.id == job_id).values(columns)))


def finishing(workshop: Workshop) -> str:
    """A job that waits for its finish, in the context of the device."""
    job = workshop.job(("w0",))
    workshop.plan(job)
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.FINISHING))
    return job


def see_worker(workshop: Workshop, name: str, **info: object) -> None:
    workshop.write(lambda session: Workers(session).record_seen(name, "host", WorkerInfo(**info)))


def claimed_job(workshop: Workshop, hold: LeaseToken | None) -> str:
    assert hold is not None
    return workshop.held(hold.item).job_id or ""


@BOTH
def test_the_owner_who_had_less_is_served_first_and_of_an_owner_the_job_that_had_less(
    workshop: Workshop,
) -> None:
    jobs = [workshop.job((name,)) for name in ("w0", "w1", "w2")]
    for job in jobs:
        workshop.plan(job)
    much, less, least = jobs
    change(workshop, much, owner="ada", owner_pass=64.0, share_pass=8.0)
    change(workshop, less, owner="ada", owner_pass=64.0, share_pass=4.0)
    change(workshop, least, owner="bob", owner_pass=16.0, share_pass=16.0)
    assert [claimed_job(workshop, workshop.claim()) for _ in jobs] == [least, less, much]
    assert workshop.claim() is None


@BOTH
def test_workers_that_claim_at_once_get_different_rounds(workshop: Workshop) -> None:
    jobs = [workshop.job((f"w{number}",)) for number in range(4)]
    for job in jobs:
        workshop.plan(job)
    round_ids = [str(round_id) for job in jobs for round_id in workshop.queued(job)]
    with ThreadPoolExecutor(4) as pool:
        holds = list(pool.map(lambda number: workshop.claim(name=f"w{number}"), range(4)))
    claimed = [hold.item.subject for hold in holds if hold is not None]
    assert len(claimed) == len(set(claimed))
    while (hold := workshop.claim()) is not None:  # SQLite's writers take turns, and one may come too late
        claimed.append(hold.item.subject)
    assert sorted(claimed) == sorted(round_ids)


@pytest.mark.parametrize("database_url", BACKENDS[1:], indirect=True)
def test_a_claim_does_not_wait_for_one_that_is_not_committed(workshop: Workshop) -> None:
    first, second = workshop.job(("w0",)), workshop.job(("w1",))
    workshop.plan(first)
    workshop.plan(second)
    with ExitStack() as open_claim:
        session = open_claim.enter_context(workshop.database.transaction())
        taken = WorkItems(session).claim_best(workshop.ability(), "slow", 60.0)
        assert taken is not None
        other = workshop.claim()
        assert other is not None
        assert other.item != taken.item
        assert workshop.claim() is None


def test_work_goes_to_the_builder_of_its_measurements_while_a_live_worker_has_it(workshop: Workshop) -> None:
    workshop.next_round(workshop.job())
    own = current_builder_name()
    workshop.write(lambda session: session.execute(update(Context).values(built_by=own)))
    assert workshop.claim(builders=ANOTHER, other_builders=frozenset({own})) is None
    assert workshop.has_waiting(longer_than_sec=0.0)
    assert not workshop.has_waiting(longer_than_sec=0.0, builders=ANOTHER, other_builders=frozenset({own}))
    assert workshop.claim(builders=ANOTHER, other_builders=frozenset()) is not None, "nobody else is left"


def test_a_worker_without_the_toolchain_of_a_target_leaves_its_work(workshop: Workshop) -> None:
    workshop.next_round(workshop.job(("w0",)))
    assert workshop.claim(lacking_toolchains=frozenset({NATIVE})) is None
    assert workshop.claim() is not None


def test_a_round_goes_to_workers_whose_tracker_has_a_device_of_its_class(workshop: Workshop) -> None:
    workshop.next_round(workshop.job())
    another = MachineKey(workshop.target_id, "another class", "0.27.0", 2)
    assert workshop.claim(devices=frozenset()) is None
    assert workshop.claim(devices=frozenset({another})) is None
    assert workshop.claim() is not None


def test_a_finish_that_nobody_with_a_device_takes_goes_to_another_who_says_what_is_missing(
    workshop: Workshop,
) -> None:
    job = finishing(workshop)
    assert workshop.claim(devices=frozenset()) is None
    workshop.age_work(LEFT_SEC + 1)
    assert claimed_job(workshop, workshop.claim(devices=frozenset())) == job


def test_a_detached_job_waits_for_its_batches(workshop: Workshop) -> None:
    job = workshop.job(measurer="detached")
    workshop.write(lambda session: Jobs(session).move_to_state(job, [JobState.TUNING], JobState.FINISHING))
    workshop.age_work(LEFT_SEC + 1)
    assert workshop.claim() is None


def test_work_that_a_host_failed_at_is_the_last_that_its_worker_takes(workshop: Workshop) -> None:
    see_worker(workshop, "sick")
    first, second = workshop.job(("w0",)), workshop.job(("w1",))
    round_id = workshop.next_round(first)
    workshop.plan(second)
    hold = workshop.claim(name="sick")
    assert hold is not None
    assert hold.item == WorkItem.for_round(round_id)
    workshop.write(lambda session: WorkItems(session).leave_to_another_host(hold, HostFault("no disk")))
    assert claimed_job(workshop, workshop.claim(name="sick")) == second
    assert claimed_job(workshop, workshop.claim(name="well")) == first


def test_a_job_is_paused_when_each_worker_that_can_do_its_round_failed_at_it(workshop: Workshop) -> None:
    own = current_builder_name()
    see_worker(workshop, "sick", builder=own)
    see_worker(workshop, "other", builder="another builder")
    see_worker(workshop, "bare", builder=own, missing_tools={NATIVE: "a linker"})
    job = workshop.job(("w0",))
    workshop.next_round(job)
    workshop.write(lambda session: session.execute(update(Context).values(built_by=own)))
    for _ in range(MAX_LOSSES):
        assert workshop.state(job) == JobState.TUNING
        workshop.age_work(60.0)
        hold = workshop.claim(name="sick")
        assert hold is not None
        error = HostFault("no disk")
        workshop.write(
            lambda session, hold=hold, error=error: WorkItems(session).leave_to_another_host(hold, error)
        )
    assert workshop.state(job) == JobState.PAUSED


def test_returned_work_waits_for_as_long_as_its_return_says(workshop: Workshop) -> None:
    round_id = workshop.next_round(workshop.job(("w0",)))
    hold = workshop.claim()
    assert hold is not None
    error = HostFault("busy")
    workshop.write(lambda session: WorkItems(session).return_work(hold, error, delay_sec=60.0))
    assert workshop.round(round_id).state == RoundState.QUEUED
    assert workshop.claim() is None
    workshop.age_work(61.0)
    assert workshop.claim() is not None


def test_a_worker_that_only_imports_claims_nothing_else(workshop: Workshop) -> None:
    workshop.next_round(workshop.job())
    assert workshop.claim(WorkKind.IMPORT) is None


def test_a_free_worker_looks_for_work_whose_message_was_lost(workshop: Workshop) -> None:
    sent: list[tuple[str, str]] = []
    lookout = Lookout(workshop, lambda *message: sent.append(message))
    workshop.roll_call.ability = workshop.ability()
    workshop.next_round(workshop.job())
    lookout.look()
    assert sent == [], "its message may still be on the way"
    workshop.age_work(2.0)
    with workshop.places.take():
        lookout.look()
        assert sent == [], "this worker is at work"
    lookout.look()
    assert sent == [(queues.WORK, queues.capability(NATIVE, current_builder_name()))]


def test_a_job_for_which_no_worker_can_build_opens_no_rounds_and_says_what_they_lack(
    workshop: Workshop,
) -> None:
    target = parse_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4})
    workshop.target_id = workshop.write(lambda session: Targets(session).ensure(target).id)
    job = workshop.job()
    lacks = {"aarch64": "zig for aarch64 (pip install ziglang)"}
    see_worker(workshop, "bench-1", missing_tools=lacks)
    assert workshop.plan_rounds(job) == []
    assert workshop.state(job) == JobState.TUNING
    assert "bench-1 lacks zig for aarch64 (pip install ziglang)" in workshop.explanation(job)
    see_worker(workshop, "bench-2", missing_tools={})
    assert workshop.plan_rounds(job) != []


def test_a_job_whose_devices_are_reached_only_by_workers_that_cannot_build_says_so(
    workshop: Workshop,
) -> None:
    target = parse_target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4})
    workshop.target_id = workshop.write(lambda session: Targets(session).ensure(target).id)
    job, lacks = workshop.job(), {"aarch64": "a linker for aarch64"}
    see_worker(workshop, "near", missing_tools=lacks, device_targets=[target.key])
    see_worker(workshop, "far", device_targets=[])
    assert workshop.plan_rounds(job) == []
    because = "no worker that reaches a device of the target can build for aarch64: near lacks a linker"
    assert because in workshop.explanation(job)
    see_worker(workshop, "far", device_targets=[target.key])
    assert workshop.plan_rounds(job) != []
