"""Many jobs and many devices: who gets the next slot of a target; nobody waits for another target."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import event, update

from mallorn.core import queues
from mallorn.core.device_wait_hint import ServiceAddress, describe_waiting
from mallorn.core.states import Cause, JobState, Waiting
from mallorn.core.targets import parse_target
from mallorn.core.values.fleet import DeviceInfo
from mallorn.core.virtual_devices import add_virtual_device
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.db.repositories.devices import Devices, SeenDevice
from mallorn.db.repositories.fair_shares import BACKSTOP_SEC
from mallorn.db.repositories.job_transitions import cancel
from mallorn.db.repositories.jobs import Jobs, JobsWaitingForDevice
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.tasks import TaskHistories
from mallorn.db.repositories.workers import Workers
from mallorn.db.tables import Device, Job, Round, Tick, Worker
from mallorn.services.control import plan_target as planning
from mallorn.services.control.periodic_tasks import LOOKS_PER_TARGET, collect_jobs_to_plan
from mallorn.services.control.plan_target import plan_target
from mallorn.services.control.wait_for_device import WaitLimit
from tests.fixtures.database import BOTH
from tests.fixtures.workshop import QUICK

NINE = '{"kind":"llvm","num-cores":9}'


def fair(given, jobs, largest=16):
    """Whether all of these got the same, give or take a round."""
    return max(given[job] for job in jobs) - min(given[job] for job in jobs) <= largest


def test_jobs_of_one_owner_take_turns(yard):
    jobs = [yard.job(), yard.job(), yard.job()]
    given = yard.turns(jobs[0], 15)
    assert fair(given, jobs)


def test_an_owner_with_many_jobs_gets_no_more_than_one_with_a_single_job(yard):
    ada = [yard.job() for _ in range(3)]
    bob = yard.job(owner="bob")
    given = yard.turns(ada[0], 24)
    assert abs(sum(given[job] for job in ada) - given[bob]) <= 48  # of some 350
    assert fair(given, ada)


def test_a_step_of_priority_is_twice_the_share(yard):
    plain, urgent = yard.job(), yard.job(priority=1)
    given = yard.turns(plain, 21)
    assert abs(given[urgent] - 2 * given[plain]) <= 32


def test_a_job_that_comes_later_neither_waits_nor_catches_up(yard):
    old = yard.job()
    yard.turns(old, 10)
    new = yard.job()
    yard.plan(new)
    given = yard.turns(new, 12)
    assert fair(given, [old, new], 32)


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_when_a_job_stops_the_others_share_what_is_left(yard, act):
    jobs = [yard.job(), yard.job(), yard.job(owner="bob")]
    yard.turns(jobs[0], 7)
    stopped, *rest = jobs
    yard.write(lambda session: getattr(Jobs(session), act)(stopped, "ada"))
    yard.write(lambda session: Rounds(session).cancel_open(stopped))
    given = yard.turns(rest[0], 12)
    assert given[stopped] == 0
    assert fair(given, rest, 32)


def test_a_job_that_was_paused_makes_up_for_nothing(yard):
    away, here = yard.job(), yard.job()
    yard.turns(away, 3)
    yard.write(lambda session: Jobs(session).pause(away, "ada"))
    yard.write(lambda session: Rounds(session).cancel_open(away))
    yard.turns(here, 10)
    yard.write(lambda session: Jobs(session).resume(away, "ada"))
    given = yard.turns(away, 12)
    assert fair(given, [away, here], 32)


@pytest.mark.parametrize(("devices", "slots"), [(1, 2), (3, 4)])
def test_a_target_has_a_slot_for_every_device_and_a_spare_one_for_up_to_four(yard, devices, slots):
    yard.devices(devices)
    yard.write(
        lambda session: session.connection().exec_driver_sql("DELETE FROM devices WHERE name = 'bench'")
    )
    jobs = [yard.job(), yard.job()]
    yard.write(
        lambda session: session.connection().exec_driver_sql("DELETE FROM devices WHERE name = 'bench'")
    )
    yard.plan(jobs[0])
    assert len(yard.open_rounds()) == slots
    assert {row.job_id for row in yard.open_rounds()} == set(jobs)
    assert yard.opened(jobs[1]) == []


def test_a_job_that_has_all_its_tasks_in_flight_leaves_its_slots_to_others(yard):
    yard.devices(5)
    narrow, wide = yard.job("w0"), yard.job("a", "b", "c", "d", "e", "f", "g")
    yard.plan(narrow)
    held = [row.job_id for row in yard.open_rounds()]
    assert (held.count(narrow), held.count(wide)) == (1, 6)


def test_jobs_of_one_target_never_wait_for_slots_of_another(yard):
    here, there = yard.job(), yard.target(cores=7)
    yard.devices(1, there)
    abroad = yard.job(target_id=there)
    yard.plan(here)
    assert len(yard.opened(abroad)) == 2
    assert {row.job_id for row in yard.open_rounds(there)} == {abroad}
    assert yard.workshop.explanation(abroad) == ""


def test_a_job_whose_target_has_no_device_waits_and_says_so_while_others_go_on(yard):
    nowhere = yard.target(cores=9)
    waits, goes_on = yard.job(target_id=nowhere), yard.job()
    assert yard.plan(waits) == []
    assert "mallorn device" in yard.workshop.explanation(waits)
    assert len(yard.opened(goes_on)) == 2
    assert yard.workshop.explanation(goes_on) == ""
    yard.devices(1, nowhere)
    assert len(yard.opened(waits)) == 2
    assert yard.workshop.explanation(waits) == ""


def test_who_only_imports_or_has_left_is_no_worker_to_tune_with(yard):
    yard.devices(2)
    for name, info in (("importer", {"can_tune": False}), ("gone", {"stopped": True})):
        yard.write(lambda session, name=name, info=info: Workers(session).record_seen(name, "host", info))
    job = yard.job()
    assert len(yard.opened(job)) == 3  # a round for each worker that tunes, and one more


def test_who_waits_is_told_the_whole_command(yard):
    waits = yard.job(target_id=yard.target(cores=9))
    plan_target(yard.workshop.database, waits, "control", WaitLimit(here=ServiceAddress("10.0.0.2:9190")))
    what, command = yard.workshop.explanation(waits).split("\n")
    assert what == f"waits for a device for {NINE}"
    assert command == f"mallorn device --target '{NINE}' --tracker 10.0.0.2:9190 --host ITS_ADDRESS"


@BOTH
def test_whoever_knows_why_there_is_no_device_has_the_word(yard):
    waits = yard.job(target_id=yard.target(cores=9))
    why = "the target has 9 cores, but this machine has 2"
    waiting = describe_waiting(NINE, ServiceAddress("127.0.0.1:1"), why)
    yard.write(lambda session: JobsWaitingForDevice(session).set_waiting(NINE, waiting))
    yard.plan(waits)
    assert yard.workshop.explanation(waits) == f"{waiting.waiting_because}\n{waiting.hint}"
    assert yard.read(lambda session: list(JobsWaitingForDevice(session).targets())) == [NINE]


def test_what_a_job_waits_for_is_known_whatever_the_words(yard):
    waits = yard.job(target_id=yard.target(cores=9))
    waiting = Waiting("no such machine far and wide", "", Cause.NOT_HERE)
    yard.write(lambda session: JobsWaitingForDevice(session).set_waiting(NINE, waiting))
    yard.plan(waits)
    assert yard.workshop.explanation(waits) == "no such machine far and wide"
    plan_target(yard.workshop.database, waits, "control", WaitLimit(limit_sec=-1.0))
    paused = yard.read(lambda session: Jobs(session).get(waits, None))
    assert paused.waiting_because.startswith("no such machine far and wide; paused after ")
    assert paused.cause == Cause.NOT_HERE
    yard.devices(1, yard.target(cores=9))
    yard.write(lambda session: Jobs(session).resume(waits, None))
    yard.plan(waits)
    assert yard.read(lambda session: Jobs(session).get(waits, None).cause) == Cause.OTHER


def test_a_job_that_waited_too_long_for_a_device_is_paused_and_can_go_on(yard):
    waits = yard.job(target_id=yard.target(cores=9))
    impatient = WaitLimit(limit_sec=-1.0)
    plan_target(yard.workshop.database, waits, "control", impatient)
    assert yard.workshop.state(waits) == JobState.PAUSED
    assert f"for a device for {NINE}" in yard.workshop.explanation(waits)
    assert f"mallorn resume {waits}" in yard.workshop.explanation(waits)
    yard.devices(1, yard.target(cores=9))
    yard.write(lambda session: Jobs(session).resume(waits, None))
    assert len(yard.opened(waits)) == 2


def test_the_time_in_which_nobody_looked_for_a_device_was_no_waiting(yard):
    waits = yard.job(target_id=yard.target(cores=9))
    long_ago = update(Job).where(Job.id == waits).values(created_at=1.0)
    yard.write(lambda session: session.execute(long_ago))
    yard.write(
        lambda session: LoopTicks(session).begin_turn(queues.SWEEP, 5.0)
    )  # somebody begins to look now
    for away_sec in (0.0, 3600.0):  # and again, before the first sweep after an hour in which all was stopped
        moved = {"begun_at": Tick.begun_at - away_sec, "since": 1.0 if away_sec else Tick.since}
        yard.write(lambda session, moved=moved: session.execute(update(Tick).values(moved)))
        plan_target(yard.workshop.database, waits, "control", WaitLimit())
        assert yard.workshop.state(waits) == JobState.TUNING


@BOTH
def test_a_job_that_loses_its_devices_says_so_and_opens_no_rounds_until_one_is_back(yard):
    job = yard.job()
    oldest, *_ = yard.opened(job)
    yard.silence()
    yard.close(oldest)
    assert yard.opened(job) == []
    assert "waits for a device" in yard.workshop.explanation(job)
    yard.workshop.see_device()
    assert len(yard.opened(job)) == 1
    assert yard.workshop.explanation(job) == ""


def change_devices(yard, host_class="made-up", tvm_version="0.27.0"):
    """All devices of the yard's target are of this class now."""
    changed = update(Device).where(Device.target_id == yard.workshop.target_id)
    yard.write(
        lambda session: session.execute(changed.values(host_class=host_class, tvm_version=tvm_version))
    )


@pytest.mark.parametrize("change", [{"host_class": "made-up+battery"}, {"tvm_version": "0.28.0"}])
def test_times_of_a_machine_that_changed_are_not_mixed_with_those_that_a_job_has(yard, change):
    job = yard.job()
    begun, _queued = yard.opened(job)
    yard.write(lambda session: Rounds(session).claim(begun, "w", 60))
    change_devices(yard, **change)
    assert yard.opened(job) == []
    assert [row.id for row in yard.open_rounds()] == [begun]  # what nobody began is withdrawn
    what, command = yard.workshop.explanation(job).split("\n")
    assert what.startswith("its times were taken on made-up with TVM 0.27.0 and 2 threads; the device is ")
    assert next(iter(change.values())) in what
    assert command.startswith("bring back governor")
    assert yard.read(lambda session: Jobs(session).get(job, None).cause) == Cause.UNLIKE
    change_devices(yard)
    assert len(yard.opened(job)) == 1
    assert yard.workshop.explanation(job) == ""


@BOTH
def test_a_job_whose_machine_stays_another_is_paused_with_what_to_type(yard):
    job = yard.job()
    yard.plan(job)
    change_devices(yard, "made-up+battery")
    plan_target(yard.workshop.database, job, "control", WaitLimit(limit_sec=-1.0))
    assert yard.workshop.state(job) == JobState.PAUSED
    assert f"mallorn resume {job}" in yard.workshop.explanation(job)


def test_a_job_goes_on_with_the_device_that_is_like_its_first(yard):
    yard.devices(2)
    job = yard.job()
    yard.plan(job)
    [first, *_] = yard.read(lambda session: Devices(session).list())
    other = update(Device).where(Device.id == first.id).values(host_class="made-up+battery")
    yard.write(lambda session: session.execute(other))
    yard.close(min(row.id for row in yard.open_rounds()))
    assert yard.opened(job)


def test_a_spent_budget_ends_a_job_whose_turn_it_is_not(yard):
    spent, other = yard.job("w0", trials=4), yard.job()
    (mine,) = [row for row in yard.opened(spent) if yard.owner_of(row) == spent]
    yard.close(mine)
    yard.plan(spent)
    assert yard.workshop.state(spent) == JobState.FINISHING
    assert {row.job_id for row in yard.open_rounds()} == {other}


def counted(yard, monkeypatch, jobs):
    """Statements and loaded jobs of the planning step after a round was closed."""
    statements, loaded = [], []
    everyone = [yard.job() for _ in range(jobs)]
    for job in everyone:
        yard.plan(job)  # the first look at a job also writes what is settled once
    closed = yard.close(min(row.id for row in yard.open_rounds()))
    had_its_part = update(Job).where(Job.id == closed).values(share_pass=1000.0)
    yard.write(lambda session: session.execute(had_its_part))
    read = TaskHistories.of

    def remember(*args):
        statements.append(args[2])

    def remember_job(self, job, **snapshot):
        loaded.append(job.id)
        return read(self, job, **snapshot)

    with monkeypatch.context() as patch:
        patch.setattr(TaskHistories, "of", remember_job)
        event.listen(yard.workshop.database.engine, "before_cursor_execute", remember)
        opened = yard.opened(closed)
        event.remove(yard.workshop.database.engine, "before_cursor_execute", remember)
    assert len(opened) == 1
    for job in everyone:
        yard.write(lambda session, job=job: Rounds(session).cancel_open(job))
        yard.write(lambda session, job=job: Jobs(session).cancel(job, "ada"))
    return len(statements), loaded, [closed, yard.owner_of(opened[0])]


def test_a_step_reads_no_more_jobs_than_it_plans_for_however_many_there_are(yard, monkeypatch):
    few, *_ = counted(yard, monkeypatch, 3)
    many, loaded, planned = counted(yard, monkeypatch, 50)
    assert loaded == planned
    assert many == few


def test_no_history_is_read_while_no_round_may_be_opened(yard, monkeypatch):
    read, loaded = TaskHistories.of, []

    def remember(self, job, **snapshot):
        loaded.append(job.id)
        return read(self, job, **snapshot)

    monkeypatch.setattr(TaskHistories, "of", remember)
    yard.devices(2)
    job = yard.job()
    assert len(yard.opened(job)) == 3
    loaded.clear()
    assert yard.opened(job) == []
    assert loaded == []
    yard.close(min(row.id for row in yard.open_rounds()))
    assert len(yard.opened(job)) == 1
    assert loaded == [job]


@BOTH
def test_steps_that_race_for_shared_workloads_neither_deadlock_nor_overspend(yard, monkeypatch):
    monkeypatch.setattr(planning, "PLAN_LEASE_SEC", -1.0)  # a lease that keeps nobody out
    yard.devices(8)
    names = [f"w{at}" for at in range(6)]
    jobs = [yard.job(*names, trials=48) for _ in range(4)]
    start = threading.Barrier(4)

    def race(job):
        start.wait()
        for _ in range(4):
            yard.plan(job)
            yard.write(lambda session: WorkItems(session).end_expired_leases(job))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, jobs))
    assert len({row.workload_id for row in yard.open_rounds()}) == 6
    assert all(sum(row.size for row in yard.open_rounds() if row.job_id == job) <= 48 for job in jobs)


def woken(yard):
    return [
        message[1] for message in collect_jobs_to_plan(yard.workshop.database) if message[0] == queues.PLAN
    ]


def set_back(yard, seconds, *columns):
    """What these columns tell happened so long before."""
    for column in columns:
        earlier = update(column.class_).values({column: column - seconds})
        yard.write(lambda session, earlier=earlier: session.execute(earlier))


@pytest.fixture
def settled(yard):
    """Jobs of a target, planned a minute ago; nothing has happened since, and not long before."""
    jobs = [yard.job() for _ in range(LOOKS_PER_TARGET + 3)]
    assert set(woken(yard)) == set(jobs), "nobody has looked at any of them"
    for job in jobs:
        yard.plan(job)
    set_back(yard, 60.0, Job.planned_at, Round.finished_at)
    set_back(yard, 120.0, Device.changed_at, Worker.changed_at)
    return jobs


@BOTH
def test_without_news_the_sweeper_wakes_no_job(yard, settled):
    assert woken(yard) == []


@BOTH
def test_the_sweeper_wakes_a_job_whose_round_ended(yard, settled):
    newest = yard.close(max(row.id for row in yard.open_rounds()))
    assert newest in woken(yard)
    yard.plan(newest)
    assert newest not in woken(yard)


def test_rounds_of_a_job_that_was_cancelled_leave_their_slots_to_a_job_that_the_sweeper_wakes(yard, settled):
    holder = yard.open_rounds()[0].job_id
    yard.write(lambda session: cancel(session, holder, "ada", "by its owner"))
    (first,) = woken(yard)
    assert first != holder
    assert yard.plan(first)
    assert woken(yard) == []


@pytest.mark.parametrize("table", [Device, Worker])
@BOTH
def test_a_few_jobs_are_woken_at_a_time_after_a_device_or_worker_came(yard, settled, table):
    yard.workers(1)
    yard.devices(1)
    set_back(yard, 120.0, Device.changed_at, Worker.changed_at)
    assert woken(yard) == []
    set_back(yard, -90.0, table.changed_at)
    assert woken(yard) == settled[:LOOKS_PER_TARGET]
    set_back(yard, -60.0, Job.planned_at)  # as if they had been planned now
    assert woken(yard) == []


@pytest.mark.parametrize("table", [Device, Worker])
def test_a_few_jobs_are_woken_at_a_time_after_a_device_or_worker_fell_silent(yard, settled, table):
    yard.workers(1)
    yard.devices(1)
    set_back(yard, 120.0, Device.changed_at, Worker.changed_at)
    set_back(yard, 3600.0 + 35.0, table.last_seen)  # five seconds more than it may
    assert woken(yard) == settled[:LOOKS_PER_TARGET]
    set_back(yard, 90.0, table.last_seen)  # before they were planned
    assert woken(yard) == []


def test_a_device_that_stops_or_becomes_another_machine_has_changed_and_one_that_is_seen_again_has_not(yard):
    yard.devices(1)
    (name, *_) = yard.read(lambda session: [device.name for device in Devices(session).list()])

    def changed_after(action):
        set_back(yard, 120.0, Device.changed_at)
        before = yard.read(lambda session: Devices(session).get(name).changed_at)
        yard.write(action)
        return yard.read(lambda session: Devices(session).get(name).changed_at) != before

    def seen(**changes):
        row = SeenDevice(name, yard.workshop.target_id, "host", "made-up", 2, "0.27.0")
        return lambda session: Devices(session).record_seen(replace(row, **changes))

    assert not changed_after(seen())
    assert changed_after(seen(host_class="other"))
    assert not changed_after(seen(host_class="other", info=DeviceInfo(busy=True)))
    assert changed_after(lambda session: Devices(session).mark_stopped((), -1e9))
    assert changed_after(seen(host_class="other"))


def test_jobs_that_wait_for_a_device_are_looked_at_in_turn(yard):
    nowhere = yard.target(cores=9)
    jobs = [yard.job(target_id=nowhere) for _ in range(LOOKS_PER_TARGET + 3)]
    for job in jobs:
        yard.plan(job)
    first = woken(yard)
    assert first == jobs[:LOOKS_PER_TARGET]
    for job in first:
        yard.plan(job)
    assert set(jobs[LOOKS_PER_TARGET:]) <= set(woken(yard))


@BOTH
def test_every_job_is_looked_at_again_after_a_while(yard, settled):
    set_back(yard, BACKSTOP_SEC, Job.planned_at, Round.finished_at)
    set_back(yard, BACKSTOP_SEC, Device.changed_at, Worker.changed_at)
    looked_at = []
    while jobs := woken(yard):
        assert len(jobs) <= LOOKS_PER_TARGET
        looked_at += jobs
        for job in jobs:
            yard.plan(job)
    assert looked_at == settled


def test_the_sweeper_wakes_a_job_whose_time_is_over(yard, settled):
    late, *_ = settled
    over = update(Job).where(Job.id == late).values(minutes=1.0, created_at=Job.created_at - 60)
    yard.write(lambda session: session.execute(over))
    assert woken(yard) == [late]


def test_every_worker_counts_as_a_virtual_device(yard):
    text = add_virtual_device(parse_target('{"kind":"llvm","num-cores":2}'), "simulated")
    target_id = yard.write(lambda session: Targets(session).ensure(text).id)
    job = yard.job(*[f"w{at}" for at in range(20)], target_id=target_id)
    yard.workers(12)
    yard.silence()
    options = {**QUICK, "measurer": "simulated"}
    bound = yard.write(lambda session: Contexts(session).ensure(target_id, "simulated", "none", 2, {}).id)
    changed = update(Job).where(Job.id == job).values(options=options, context_id=bound)
    yard.write(lambda session: session.execute(changed))
    assert len(yard.opened(job)) == 15
    assert yard.workshop.explanation(job) == ""
